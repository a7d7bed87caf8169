"""One tiny corpus and one tiny model for all journeys; whoever changes something works on a copy.

The model ends no sentence by itself, so its configuration keeps translations about as long as their sources.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.journeys.commands import run

from regard.cli.output.progress import Reporter

WORDS = {
    "gato": "cat", "perro": "dog", "niño": "child", "casa": "house", "sol": "sun", "mar": "sea",
    "ve": "sees", "come": "eats", "busca": "seeks", "quiere": "wants", "hoy": "today", "aquí": "here",
}  # fmt: skip
TINY = """\
seed = 3
[data]
source_language = "es"
target_language = "en"
train.source = "train.es"
train.target = "train.en"
valid.source = "valid.es"
valid.target = "valid.en"
attribution = "made up for a test"
[tokenizer]
vocabulary_size = 320
[model]
kind = "transformer"
encoder_layers = 1
decoder_layers = 1
width = 16
heads = 2
feed_forward = 32
[search]
length_ratio = 1.0
length_margin = 2
[training]
max_steps = 12
batch_tokens = 256
learning_rate = 1e-2
warmup = 4
precision = "float32"
threads = 1
validate_every = 6
validate_sentences = 10
save_every = 3
log_every = 4
"""


def write_corpus(folder: Path) -> None:
    dice = random.Random(1)
    names, verbs, ends = list(WORDS)[:6], list(WORDS)[6:10], list(WORDS)[10:]
    for name, count in (("train", 200), ("valid", 20)):
        source, target = [], []
        for _ in range(count):
            words = [dice.choice(names), dice.choice(verbs), dice.choice(names), dice.choice(ends)]
            source.append("El " + " ".join(words) + ".")
            target.append("The " + " ".join(WORDS[word] for word in words) + ".")
        for language, lines in (("es", source), ("en", target)):
            text = "".join(line + "\n" for line in lines)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")


DRAW_CURVES = Reporter.draw_curves


@pytest.fixture(scope="session")
def no_other_corpora() -> Iterator[None]:
    """A journey finds its own corpus beside its configuration, not the person's through REGARD_DATA."""
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.delenv("REGARD_DATA", raising=False)
        yield


@pytest.fixture(scope="session")
def corpus(no_other_corpora: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 200 sentence pairs, 20 more to validate on, and tiny.toml. Nobody writes into it."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a training that finished. Nobody writes into it."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    result = run("train", corpus / "tiny.toml", "--run", folder)
    assert result.code == 0, result
    (folder / "said").write_text(result.out, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_curves(trained: Path) -> Iterator[None]:
    """Draw none unless they are the matter: they take longer than a training here, and `trained` has some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "draw_curves", lambda self: None)
        yield


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, to be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def corpus_copy(corpus: Path, tmp_path: Path) -> Path:
    """A copy of the corpus, to be spoilt."""
    return Path(shutil.copytree(corpus, tmp_path / "own"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for this fixture to have curves drawn."""
    monkeypatch.setattr(Reporter, "draw_curves", DRAW_CURVES)
