"""Embeddings that begin as word vectors: which pieces have which, how wide they are, and what is frozen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from tests.translation.tiny import WORDS, configuration, resumed, stop_at, trainer

from regard.errors import ConfigurationError, DataError
from regard.translation.settings.toml import dump, parse
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training import pretrained
from regard.translation.training.preparation import prepare
from regard.translation.training.reporting import Observer
from regard.translation.training.vectors import Vectors

RANDOM = np.random.default_rng(8)


def vectors(width: int, words: list[str]) -> Vectors:
    made = {word: RANDOM.normal(size=width).astype(np.float32) for word in words}
    return Vectors(width, made, len(made))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = ["one two three, one two one", "onerous oneness twofold two. one one"] * 30
    return Tokenizer.train(lines, vocabulary_size=310, kind="bpe")


def test_a_whole_word_has_its_vector_and_another_piece_the_mean_of_its_words(tokenizer):
    found = vectors(5, ["one", "onerous", "oneness", ",", "nowhere"])
    counts = Counter({"one": 50, "onerous": 3, "oneness": 1, "twofold": 7, "Onerous": 2})
    ids, matched = pretrained.match(tokenizer, counts, found)
    place = {tokenizer.pieces([i])[0]: row for row, i in enumerate(ids.tolist())}
    assert matched[place["▁one"]] == pytest.approx(found.words["one"])
    assert matched[place[","]] == pytest.approx(found.words[","])
    assert found.vector("Onerous") is found.words["onerous"]
    own = set(tokenizer.encode("oneness")) - set(tokenizer.encode("onerous"))
    shared = set(tokenizer.encode("oneness")) & set(tokenizer.encode("onerous")) - set(
        tokenizer.encode("one") + tokenizer.encode("Onerous")
    )
    for piece in own - set(tokenizer.encode("one")):
        row = place[tokenizer.pieces([piece])[0]]
        assert matched[row] == pytest.approx(found.words["oneness"])
    for piece in shared:
        row = place[tokenizer.pieces([piece])[0]]
        mean = (3 * found.words["onerous"] + found.words["oneness"]) / 4
        assert matched[row] == pytest.approx(mean)
    assert not set(ids.tolist()) & set(tokenizer.encode("twofold"))
    assert all(tokenizer.is_text(i) for i in ids.tolist())


def test_wider_vectors_keep_their_products_best_and_narrower_ones_their_columns():
    table = torch.randn(9, 4) * 0.3
    low = RANDOM.normal(size=(7, 4)) @ RANDOM.normal(size=(4, 10))  # of rank 4: nothing is lost
    fitted = pretrained.fit(low, table).double().numpy()
    scale = np.sqrt((low @ low.T).trace() / (fitted @ fitted.T).trace())
    assert fitted @ fitted.T * scale**2 == pytest.approx(low @ low.T, abs=1e-4)
    assert np.sqrt((fitted**2).mean()) == pytest.approx(float(table.pow(2).mean().sqrt()))
    narrow = pretrained.fit(low[:, :3], table)
    assert narrow.shape == (7, 3)
    assert pretrained.fit(low[:0], table).shape == (0, 4)


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def write(tmp_path, width: int = 16, words: list[str] = WORDS) -> str:
    made = vectors(width, [*words, *(word.upper() for word in words)]).words
    rows = "".join(f"{word} {' '.join(map(str, row.tolist()))}\n" for word, row in made.items())
    (tmp_path / "words.vec").write_text(f"{len(made)} {width}\n{rows}", encoding="utf-8")
    return f'pretrained.source="{tmp_path / "words.vec"}"'


@pytest.mark.parametrize("model", ["transformer", "recurrent"])
@pytest.mark.parametrize("width", [8, 16, 40])
def test_a_training_begins_with_vectors(tmp_path, model, width):
    named = write(tmp_path, width)
    changed = configuration(tmp_path, named, "model.tied=none", model=model)
    assert parse(dump(changed)) == changed
    heard = Heard()
    made = prepare(changed, tmp_path / "run", observer=heard)
    plain = trainer(tmp_path, "model.tied=none", run="plain", model=model)
    new, old = (each.model.source_embedding.weight for each in (made, plain))
    rows = (new != old).any(1)
    pieces = made.run.tokenizers().source.pieces(rows.nonzero()[:, 0].tolist())
    assert {f"▁{word}" for word in ("one", "two", "six")} & set(pieces)
    assert bool((new[rows][:, : min(width, 16)] != old[rows][:, : min(width, 16)]).all())
    assert torch.equal(new[rows][:, width:], old[rows][:, width:])
    assert torch.equal(made.model.target_embedding.weight, plain.model.target_embedding.weight)
    (note,) = [note for note in heard.notes if "words.vec" in note]
    assert f"words.vec: {int(rows.sum())} of " in note
    assert "100.0% of the words of the text have a vector" in note
    assert (f"width {width}" in note) == (width != 16)


def test_frozen_embeddings_stay_and_a_resumed_training_needs_no_file(tmp_path):
    changes = (write(tmp_path), "pretrained.frozen=true", "model.tied=target")
    first = trainer(tmp_path, *changes)
    begun = first.model.source_embedding.weight.detach().clone()
    target = first.model.target_embedding.weight.detach().clone()
    (tmp_path / "words.vec").unlink()
    del first
    again = resumed(tmp_path, *changes)  # as after a kill before the first step
    assert torch.equal(again.model.source_embedding.weight, begun)
    stop_at(again, 3)
    last = resumed(tmp_path, *changes)
    assert last.train() == "finished"
    assert torch.equal(last.model.source_embedding.weight, begun)
    assert not torch.equal(last.model.target_embedding.weight, target)


def test_one_table_for_both_languages_takes_vectors_of_both(tmp_path):
    named = write(tmp_path)
    both = (named, named.replace("source", "target"), "pretrained.frozen=true")
    made = trainer(tmp_path, *both)
    assert made.model.source_embedding is made.model.target_embedding
    begun = made.model.source_embedding.weight.detach().clone()
    made.train()
    assert torch.equal(made.model.source_embedding.weight, begun)


def test_what_cannot_be_used_leaves_no_folder(tmp_path):
    named = write(tmp_path)
    (tmp_path / "words.vec").write_text("1 2\none 1 nan\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"words\.vec:2"):
        trainer(tmp_path, named)
    assert not (tmp_path / "run" / "config.toml").exists()
    with pytest.raises(ConfigurationError, match="give `source`, `target` or both"):
        configuration(tmp_path, "pretrained.frozen=true")
    with pytest.raises(ConfigurationError, match=r"did you mean pretrained\.source"):
        configuration(tmp_path, "pretrained.sources=x")
    start = trainer(tmp_path, run="start")
    with pytest.raises(ConfigurationError, match="both set the embeddings"):
        prepare(configuration(tmp_path, named), tmp_path / "run", start=start.run)
