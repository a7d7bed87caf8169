"""What the same updates are worth: JoeyNMT's training beside `regard train`, on the same text and size.

REGARD_DATA=data python benchmarks/quality/baseline.py FOLDER --joeynmt PYTHON [--steps 1500]
    [--out benchmarks/results/baseline.json]

Spanish to English on Tatoeba, the Transformer of tatoeba-es-en (3 + 3 layers of width 256), one
sentencepiece model for both, Adam at 1e-3 after 500 steps of warm-up and by the inverse square root
from there, label smoothing 0.1, dropout 0.1, float32, beam 5. Both are told the same number of
tokens a batch and count them each in its way: JoeyNMT those of a rectangle that holds source and
target, padding with them, Regard the target's alone. Both therefore report how many target tokens
they have read. --joeynmt is made as benchmarks/peers/training.py tells.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from _training import progress, settings, train

from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Pair, Tsv, read_pairs
from regard.translation.translator import Translator

WARMUP = 500
BATCH_TOKENS = 1024
JOEYNMT = """
name: "baseline"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joeynmt"
use_cuda: False
fp16: False
data:
    train: "{folder}/train"
    dev: "{folder}/valid"
    dataset_type: "plain"
    src: &side {{lang: "es", max_length: 200, level: "bpe", voc_file: "{folder}/vocabulary",
        tokenizer_type: "sentencepiece", tokenizer_cfg: {{model_file: "{folder}/pieces.model"}}}}
    trg: {{<<: *side, lang: "en"}}
testing: {{beam_size: 5, beam_alpha: {alpha}, batch_size: 32, batch_type: "sentence", eval_metrics: ["bleu"]}}
training: {{optimizer: "adam", adam_betas: [0.9, 0.98], learning_rate: 0.001, normalization: "tokens",
    scheduling: "warmupinversesquareroot", learning_rate_warmup: {warmup}, batch_size: {tokens},
    batch_type: "token", clip_grad_norm: 1.0, label_smoothing: 0.1, loss: "crossentropy", epochs: 1000,
    updates: {steps}, validation_freq: {steps}, logging_freq: 50, early_stopping_metric: "bleu",
    overwrite: True, shuffle: True, print_valid_sents: [0], keep_best_ckpts: 1}}
model:
    initializer: "xavier_uniform"
    tied_embeddings: True
    tied_softmax: True
    encoder: &half {{type: "transformer", num_layers: 3, num_heads: 4, hidden_size: 256, ff_size: 1024,
        embeddings: {{embedding_dim: 256, scale: True, dropout: 0.1}}, dropout: 0.1, layer_norm: "pre"}}
    decoder: *half
"""
# Their checkpoints are pickles: opened by their own environment, which wrote them a moment ago.
TOTAL_TOKENS = (
    "import sys, torch; print(torch.load(sys.argv[1], weights_only=False)['total_tokens'])"
)


def corpus(part: str) -> list[Pair]:
    file = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / f"{part}.tsv"
    return list(read_pairs(Tsv(file, source_column=1, target_column=0)).pairs)


def scores(texts: list[str], pairs: list[Pair]) -> dict[str, float | None]:
    found = measure(texts, [pair.target for pair in pairs], measures=["bleu", "chrf", "exact"])
    return {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact}


def ours(folder: Path, steps: int) -> dict[str, Any]:
    """A run of ours with one tokenization of each sentence, as JoeyNMT has it."""
    run = train(
        "tatoeba-es-en",
        folder / "regard",
        *settings(
            tokenizer__sampling=0.0,
            training__max_steps=steps,
            training__batch_tokens=BATCH_TOKENS,
            training__warmup=WARMUP,
            training__schedule="inverse_square_root",
            training__precision="float32",
            training__threads=1,
            training__average="false",
            training__validate_every=steps,
            training__validate_sentences=200,
        ),
    )
    took = progress(run)
    translator = Translator.open(run)
    pairs = corpus("test")
    found = translator.translate([pair.source for pair in pairs])
    return {
        "steps": took["step"],
        "target_tokens": took["target_tokens"],
        "minutes": took["seconds"] / 60,
        "test": scores([each.text for each in found], pairs),
    }


def prepare(folder: Path, steps: int) -> None:
    """Their folder of text, with the tokenizer of our run."""
    import sentencepiece

    for part, limit in (("train", None), ("valid", 200)):
        pairs = corpus(part)
        # The files are sorted by length: every tenth line, where a few will do.
        chosen = pairs if limit is None else pairs[:: len(pairs) // limit]
        for side, language in (("source", "es"), ("target", "en")):
            lines = "".join(getattr(pair, side) + "\n" for pair in chosen)
            (folder / f"{part}.{language}").write_text(lines, encoding="utf-8")
    model = (folder / "regard" / "tokenizer.model").read_bytes()
    (folder / "pieces.model").write_bytes(model)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    names = [pieces.id_to_piece(i) for i in range(4, len(pieces))]
    (folder / "vocabulary").write_text("\n".join(names) + "\n", encoding="utf-8")
    alpha = Translator.open(folder / "regard").search.length_penalty
    (folder / "joeynmt.yaml").write_text(
        JOEYNMT.format(folder=folder, steps=steps, warmup=WARMUP, tokens=BATCH_TOKENS, alpha=alpha),
        encoding="utf-8",
    )


def theirs(folder: Path, steps: int, python: str) -> dict[str, Any]:
    """The same by their commands; tokens and time by what their training reports."""
    command = [python, "-m", "joeynmt"]
    yaml = str(folder / "joeynmt.yaml")
    if not list((folder / "joeynmt").glob("*.ckpt")):
        begun = time.monotonic()
        subprocess.run([*command, "train", yaml, "--skip-test"], check=True)
        (folder / "joeynmt" / "seconds").write_text(str(time.monotonic() - begun))
    pairs = corpus("test")
    written = folder / "joeynmt" / "test.txt"
    if not written.exists():
        subprocess.run(
            [*command, "translate", yaml, "--output-path", str(written)],
            input="".join(pair.source + "\n" for pair in pairs),
            text=True,
            check=True,
        )
    checkpoint = max((folder / "joeynmt").glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    counted = subprocess.run(
        [python, "-c", TOTAL_TOKENS, str(checkpoint)], capture_output=True, text=True, check=True
    )
    return {
        "steps": steps,
        "target_tokens": int(counted.stdout),
        "minutes": float((folder / "joeynmt" / "seconds").read_text()) / 60,
        "test": scores(written.read_text(encoding="utf-8").splitlines(), pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--joeynmt", required=True, help="the Python it is installed for")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = {"Regard": ours(options.folder, options.steps)}
    print(table, flush=True)
    prepare(options.folder, options.steps)
    table["JoeyNMT"] = theirs(options.folder, options.steps, options.joeynmt)
    print(table, flush=True)
    if options.out:
        write(options.out, {"configuration": "tatoeba-es-en", "table": table})


if __name__ == "__main__":
    main()
