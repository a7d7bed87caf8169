"""The smallest trainings: width 16, a few sentences."""

from __future__ import annotations

from pathlib import Path

from regard.translation.settings.configuration import Configuration
from regard.translation.settings.toml import parse
from regard.translation.training.loop import Trainer
from regard.translation.training.preparation import prepare, prepare_resumed

WORDS = "one two three four five six seven eight".split()
PAIRS = [(f"{a} {b}", f"{b.upper()} {a.upper()}") for a in WORDS for b in WORDS[:4]]

TRANSFORMER = """
kind = "transformer"
encoder_layers = 1
decoder_layers = 1
width = 16
heads = 2
feed_forward = 32
"""
RECURRENT = """
kind = "recurrent"
embedding_width = 16
encoder_width = 8
decoder_width = 16
attention_width = 16
"""
REST = """
dropout = 0.1
[tokenizer]
vocabulary_size = 320
sampling = 0.2
[training]
precision = "float32"
max_steps = 8
batch_tokens = 40
learning_rate = 1e-2
warmup = 2
validate_every = 4
validate_sentences = 4
save_every = 2
log_every = 1
[search]
beam = 2
"""
MODELS = {"transformer": TRANSFORMER, "recurrent": RECURRENT}


def configuration(folder: Path, *changes: str, model: str = "transformer") -> Configuration:
    """A configuration whose corpus lies in `folder`."""
    corpus = folder / "pairs.tsv"
    corpus.write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    data = f"[data]\ntrain.tsv = '{corpus}'\nvalid.tsv = '{corpus}'\n[model]"
    return parse(data + MODELS[model] + REST, "tiny.toml", changes)


def trainer(folder: Path, *changes: str, run: str = "run", model: str = "transformer") -> Trainer:
    """A trainer for a new run in `folder`."""
    return prepare(configuration(folder, *changes, model=model), folder / run)


def resumed(folder: Path, *changes: str, run: str = "run", model: str = "transformer") -> Trainer:
    """A trainer that goes on with a run in `folder`."""
    return prepare_resumed(folder / run, configuration=configuration(folder, *changes, model=model))


def stop_at(trainer: Trainer, step: int) -> Trainer:
    """Train and stop after a step, as Ctrl-C does."""
    assert trainer.train(lambda: trainer.progress.step >= step) == "stopped"
    assert trainer.progress.step == step
    return trainer
