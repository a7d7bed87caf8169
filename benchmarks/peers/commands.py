"""Training end to end beside other projects' commands: `regard train`, `joeynmt train`, `eole train`, in turns.

REGARD_DATA=data python benchmarks/peers/commands.py --joeynmt PYTHON --eole EOLE [--seconds 25] [--out FILE]

Multi30k English to German, one sentencepiece model of 8,000 pieces for all, 3 + 3 layers of width 256 (feed-forward
1,024, 4 heads, dropout 0.1, one embedding for all), Adam at 1e-3, label smoothing 0.1, float32, batches of 2,048
positions as each project makes them. Each command starts as a user would start it and runs until --seconds after its
first report; counted are the target tokens a second that it reports itself, batches included, the median of all
reports but the first. Threads: OMP_NUM_THREADS, one here.

--joeynmt is the Python of the environment that benchmarks/peers/training.py tells how to make: the last release needs
sentencepiece below 0.2.1 (SetVocabulary), a scheduler (without one it stops), and importlib_metadata.
--eole is the command of an environment made by
    python3 -m venv eole && eole/bin/pip install torch 'ctranslate2<5' configargparse fastapi huggingface_hub \\
        datasets pandas protobuf==7.36.2 pyahocorasick 'pyonmttok<2' pyyaml rapidfuzz rich sacrebleu safetensors \\
        'sentencepiece<=0.2.2' six subword-nmt tensorboard tokenizers torch-optimi uvicorn waitress pydantic \\
        aiohttp requests
    eole/bin/pip install --no-deps eole==0.6.4
(without spaCy, fastText and torchcodec, which training on text does not ask for).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _measure import write

SHAPE = {
    "tokenizer.vocabulary_size": 8000,
    "tokenizer.sampling": 0.0,
    "training.batch_tokens": 2048,
    "training.log_every": 1,
    "training.validate_sentences": 2,
    "training.precision": '"float32"',
    "model.width": 256,
    "model.feed_forward": 1024,
    "model.encoder_layers": 3,
    "model.decoder_layers": 3,
    "model.dropout": 0.1,
}
JOEYNMT = """
name: "m30k"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joeynmt"
use_cuda: False
fp16: False
data:
    train: "{folder}/train"
    dev: "{folder}/val"
    dataset_type: "plain"
    src: &side {{lang: "en", max_length: 200, level: "bpe", voc_file: "{folder}/vocabulary",
        tokenizer_type: "sentencepiece", tokenizer_cfg: {{model_file: "{folder}/pieces.model"}}}}
    trg: {{<<: *side, lang: "de"}}
testing: {{beam_size: 1, batch_size: 32, batch_type: "sentence", eval_metrics: ["bleu"]}}
training: {{optimizer: "adam", adam_betas: [0.9, 0.98], learning_rate: 0.001, normalization: "tokens",
    scheduling: "warmupinversesquareroot", learning_rate_warmup: 1000, batch_size: 2048, batch_type: "token",
    clip_grad_norm: 1.0, label_smoothing: 0.1, loss: "crossentropy", epochs: 100, updates: 100000,
    validation_freq: 100000, logging_freq: 1, early_stopping_metric: "bleu", overwrite: True, shuffle: True,
    print_valid_sents: [0], keep_best_ckpts: 1}}
model:
    initializer: "xavier_uniform"
    tied_embeddings: True
    tied_softmax: True
    encoder: &half {{type: "transformer", num_layers: 3, num_heads: 4, hidden_size: 256, ff_size: 1024,
        embeddings: {{embedding_dim: 256, scale: True, dropout: 0.0}}, dropout: 0.1, layer_norm: "pre"}}
    decoder: *half
"""
EOLE = """
overwrite: true
share_vocab: true
src_vocab: {folder}/vocabulary
tgt_vocab: {folder}/vocabulary
src_vocab_size: 8000
tgt_vocab_size: 8000
vocab_size_multiple: 1
report_every: 1
n_sample: 0
save_data: {folder}/eole
data:
  corpus: {{path_src: {folder}/train.en, path_tgt: {folder}/train.de, transforms: [sentencepiece], weight: 1}}
  valid: {{path_src: {folder}/val.en, path_tgt: {folder}/val.de, transforms: [sentencepiece]}}
transforms_configs:
  sentencepiece: {{src_subword_model: {folder}/pieces.model, tgt_subword_model: {folder}/pieces.model}}
training: {{model_path: {folder}/eole-model, bucket_size: 30000, num_workers: 0, prefetch_factor: 100,
  batch_type: tokens, batch_size: 2048, batch_size_multiple: 1, accum_count: [1], normalization: tokens,
  optim: adam, adam_beta2: 0.98, learning_rate: 0.001, decay_method: none, warmup_steps: 0, max_grad_norm: 1.0,
  label_smoothing: 0.1, dropout: [0.1], attention_dropout: [0.0], param_init_method: xavier_uniform,
  compute_dtype: fp32, train_steps: 100000, valid_steps: 100000, save_checkpoint_steps: 100000,
  gpu_ranks: [], world_size: 0}}
model: {{architecture: transformer, layers: 3, hidden_size: 256, heads: 4, transformer_ff: 1024,
  share_embeddings: true, share_decoder_embeddings: true,
  embeddings: {{word_vec_size: 256, position_encoding_type: SinusoidalInterleaved}}}}
"""
REPORTS = {
    "regard": re.compile(r"([\d,]+) tokens/s"),
    "JoeyNMT": re.compile(r"Tokens per Sec:\s*([\d,.]+)"),
    "eole": re.compile(r"/\s*([\d,.]+) tok/s"),
}


def prepare(folder: Path, data: Path, python: str) -> None:
    """The text, and a run of one step whose tokenizer all others are given."""
    for name in ("train.en", "train.de", "val.en", "val.de"):
        packed = data / "multi30k-task1" / f"{name}.gz"
        (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    changes = [f"--set={key}={value}" for key, value in SHAPE.items()]
    command = [python, "-m", "regard", "train", "multi30k-en-de", "--run", str(folder / "run")]
    subprocess.run(
        [*command, "--set=training.max_steps=1", *changes], check=True, capture_output=True
    )
    import sentencepiece

    model = next((folder / "run").rglob("*.model"))
    (folder / "pieces.model").write_bytes(model.read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    names = [pieces.id_to_piece(i) for i in range(4, len(pieces))]
    (folder / "vocabulary").write_text("\n".join(names) + "\n")
    (folder / "joeynmt.yaml").write_text(JOEYNMT.format(folder=folder))
    (folder / "eole.yaml").write_text(EOLE.format(folder=folder))


def reported(name: str, command: list[str], seconds: float) -> list[float]:
    """The target tokens a second that a command reports, until some seconds after the first report."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    rates: list[float] = []
    tail: list[str] = []
    first_report = None
    assert process.stdout is not None
    try:
        for line in process.stdout:
            tail = [*tail[-20:], line]
            rate = REPORTS[name].search(line)
            if rate:
                rates.append(float(rate[1].replace(",", "")))
                first_report = first_report or time.monotonic()
            if first_report is not None and time.monotonic() - first_report > seconds:
                break
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if len(rates) < 3:
        raise SystemExit(f"{name}: only {len(rates)} reports\n" + "".join(tail))
    return rates[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joeynmt", help="the Python it is installed for")
    parser.add_argument("--eole", help="its command")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="kept, and used again if it is there")
    parser.add_argument("--prepare", action="store_true", help="prepare the folder and end")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "eole.yaml").exists():
            folder.mkdir(parents=True, exist_ok=True)
            prepare(folder, Path(os.environ["REGARD_DATA"]), sys.executable)
        if options.prepare:
            return
        resumed = [str(folder / "run"), "--resume", "--set", "training.max_steps=100000"]
        commands = {"regard": [sys.executable, "-m", "regard", "train", *resumed]}
        if options.joeynmt:
            yaml = str(folder / "joeynmt.yaml")
            commands["JoeyNMT"] = [options.joeynmt, "-m", "joeynmt", "train", yaml, "--skip-test"]
        if options.eole:
            commands["eole"] = [options.eole, "train", "-config", str(folder / "eole.yaml")]
        rates: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                rates[name] += reported(name, command, options.seconds)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    results = {
        name: {
            "target tokens a second": medians[name],
            "times as fast": medians["regard"] / medians[name],
            "each": each,
        }
        for name, each in rates.items()
    }
    print(
        json.dumps(
            {name: {k: v for k, v in r.items() if k != "each"} for name, r in results.items()},
            indent=1,
        )
    )
    if options.out:
        write(options.out, {"training commands": results})


if __name__ == "__main__":
    main()
