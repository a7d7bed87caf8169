"""What the same updates are worth: JoeyNMT's training beside `regard train`, on the same text and size.

REGARD_DATA=data python benchmarks/quality/baseline.py FOLDER [--joeynmt PYTHON] [--steps 1500] [--lines N]
    [--configuration tatoeba-es-en] [--out benchmarks/results/baseline.json]

Spanish to English on Tatoeba, the Transformer of tatoeba-es-en (3 + 3 layers of width 256), one
sentencepiece model for both, Adam at 1e-3 after 500 steps of warm-up and by the inverse square root
from there, label smoothing 0.1, dropout 0.1, float32, beam 5. Both are told the same number of
tokens a batch and count them each in its way: JoeyNMT those of a rectangle that holds source and
target, padding with them, Regard the target's alone. Both therefore report how many target tokens
they have read. --joeynmt is made as benchmarks/peers/training.py tells; without it, and with
another --configuration, it is ours alone.
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
VALIDATED = 200
JOEYNMT = """
name: "baseline"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joeynmt"
use_cuda: False
fp16: False
data:
    train: "{folder}/train"
    dev: "{folder}/valid"
    test: "{folder}/test"
    dataset_type: "plain"
    src: &side {{lang: "es", max_length: 200, level: "bpe", voc_file: "{folder}/vocabulary",
        tokenizer_type: "sentencepiece", tokenizer_cfg: {{model_file: "{folder}/pieces.model"}}}}
    trg: {{<<: *side, lang: "en"}}
testing: {{beam_size: 5, beam_alpha: {alpha}, batch_size: 32, batch_type: "sentence",
    eval_metrics: ["bleu"]}}
training: {{optimizer: "adam", adam_betas: [0.9, 0.98], learning_rate: 0.001, normalization: "tokens",
    scheduling: "warmupinversesquareroot", learning_rate_warmup: {warmup}, batch_size: {tokens},
    batch_type: "token", clip_grad_norm: 1.0, label_smoothing: 0.1, loss: "crossentropy", epochs: 1000,
    updates: {steps}, validation_freq: {steps}, logging_freq: {report}, early_stopping_metric: "bleu",
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
TOTAL_TOKENS = "import sys, torch; print(torch.load(sys.argv[1], weights_only=False)['stats_state']['total_tokens'])"


def corpus(split: str, lines: int | None = None) -> list[Pair]:
    """The pairs of a file, or so many of them: evenly, since it is sorted by length."""
    file = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / f"{split}.tsv"
    pairs = list(read_pairs(Tsv(file, source_column=1, target_column=0)).pairs)
    return pairs[:: max(1, len(pairs) // lines)] if lines else pairs


def scores(texts: list[str], pairs: list[Pair]) -> dict[str, float | None]:
    figures = measure(texts, [pair.target for pair in pairs], measures=["bleu", "chrf", "exact"])
    return {"bleu": figures.bleu, "chrf": figures.chrf, "exact": figures.exact}


def ours(configuration: str, folder: Path, steps: int, lines: int | None) -> dict[str, Any]:
    """A run of ours with one tokenization of each sentence, as JoeyNMT has it."""
    run = train(
        configuration,
        folder / "regard",
        *settings(
            tokenizer__sampling=0.0,
            training__max_steps=steps,
            training__optimiser="adam",
            training__learning_rate=1e-3,
            training__batch_tokens=BATCH_TOKENS,
            training__warmup=WARMUP,
            training__schedule="inverse_square_root",
            training__precision="float32",
            training__threads=1,
            training__average="false",
            training__validate_every=steps,
            training__validate_sentences=VALIDATED,
        ),
    )
    took = progress(run)
    translator = Translator.open(run)
    pairs = corpus("test", lines)
    translations = translator.translate([pair.source for pair in pairs])
    return {
        "steps": took["step"],
        "target_tokens": took["target_tokens"],
        "minutes": took["seconds"] / 60,
        "test": scores([each.text for each in translations], pairs),
    }


def prepare(folder: Path, steps: int, lines: int | None) -> None:
    """Their folder of text, with the tokenizer of our run."""
    import sentencepiece

    for split, count in (("train", None), ("valid", VALIDATED), ("test", lines)):
        pairs = corpus(split, count)
        for side, language in (("source", "es"), ("target", "en")):
            lines = "".join(getattr(pair, side) + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    model = (folder / "regard" / "tokenizer.model").read_bytes()
    (folder / "pieces.model").write_bytes(model)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    names = [pieces.id_to_piece(i) for i in range(4, len(pieces))]
    (folder / "vocabulary").write_text("\n".join(names) + "\n", encoding="utf-8")
    alpha = Translator.open(folder / "regard").search.length_penalty
    (folder / "joeynmt.yaml").write_text(
        JOEYNMT.format(
            folder=folder,
            steps=steps,
            warmup=WARMUP,
            tokens=BATCH_TOKENS,
            alpha=alpha,
            report=max(1, steps // 30),
        ),
        encoding="utf-8",
    )


def theirs(folder: Path, steps: int, lines: int | None, python: str) -> dict[str, Any]:
    """The same by their commands; tokens and time by what their training reports."""
    command = [python, "-m", "joeynmt"]
    yaml = str(folder / "joeynmt.yaml")
    if not list((folder / "joeynmt").glob("*.ckpt")):
        start = time.monotonic()
        subprocess.run([*command, "train", yaml, "--skip-test"], check=True)
        (folder / "joeynmt" / "seconds").write_text(str(time.monotonic() - start))
    stored = folder / "joeynmt" / "found"
    if not stored.with_suffix(".test").exists():
        subprocess.run([*command, "test", yaml, "--output-path", str(stored)], check=True)
    checkpoint = max((folder / "joeynmt").glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    counted = subprocess.run(
        [python, "-c", TOTAL_TOKENS, str(checkpoint)], capture_output=True, text=True, check=True
    )
    return {
        "steps": steps,
        "target_tokens": int(counted.stdout),
        "minutes": float((folder / "joeynmt" / "seconds").read_text()) / 60,
        "test": scores(
            stored.with_suffix(".test").read_text(encoding="utf-8").splitlines(),
            corpus("test", lines),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--joeynmt", help="the Python it is installed for")
    parser.add_argument("--configuration", default="tatoeba-es-en")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--lines", type=int, help="of the test file; all of them by default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = {"Regard": ours(options.configuration, options.folder, options.steps, options.lines)}
    print(table, flush=True)
    if options.joeynmt:
        prepare(options.folder, options.steps, options.lines)
        table["JoeyNMT"] = theirs(options.folder, options.steps, options.lines, options.joeynmt)
        print(table, flush=True)
    if options.out:
        write(options.out, {"configuration": options.configuration, "table": table})


if __name__ == "__main__":
    main()
