"""Guided attention: links in words become what pieces look at, and a head learns it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.translation import tiny

import regard
from regard.attention.looks import StoredLook
from regard.errors import ConfigurationError, DataError
from regard.translation.runs import Tokenizers
from regard.translation.settings.toml import parse
from regard.translation.settings.training import GuideSettings
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.epochs import Epochs
from regard.translation.training.guiding import Guide

PAIRS = [
    Pair("el gato negro duerme.", "the black cat sleeps.", links="0-0 1-2 2-1 3-3"),
    Pair("hola", "hello my friend"),
    Pair("buenos días", "good day", links="0-0 1?1"),
]


UNSAMPLED = parse(
    "[data]\ngenerated.task = 'reverse'\n[model]\nkind = 'transformer'\n[tokenizer]\nsampling = 0\n"
    "[training]\nbatch_tokens = 300"
)


def tokenizers(*tags: str) -> Tokenizers:
    text = [side for pair in PAIRS for side in pair[:2]]
    learnt_tokenizer = Tokenizer.train(text * 3, vocabulary_size=340, tags=tags)
    return Tokenizers(learnt_tokenizer, learnt_tokenizer)


def split_words(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The word of each piece: how many have begun so far."""
    pieces = tokenizer.pieces(ids)
    partial_counts = ["".join(pieces[: end + 1]).count("\u2581") - 1 for end in range(len(ids))]
    return [word if i > 3 else -1 for word, i in zip(partial_counts, ids, strict=True)]


@pytest.mark.parametrize("rows", ["read", "written"])
def test_every_piece_of_a_word_looks_at_every_piece_of_the_words_linked_to_it(rows: str) -> None:
    known_tokenizers = tokenizers()
    batch = Epochs(PAIRS, known_tokenizers, UNSAMPLED).part(0, 0).batch
    assert len(batch.rows) == 3
    linked = Guide(GuideSettings(rows=rows), PAIRS, known_tokenizers).linked(batch)  # type: ignore[arg-type]
    for i, row in enumerate(batch.rows):
        links = {
            tuple(map(int, link.replace("?", "-").split("-"))) for link in PAIRS[row].links.split()
        }
        target = batch.target_in if rows == "read" else batch.target_out
        sources = split_words(known_tokenizers.source, batch.source[i].tolist())
        targets = split_words(known_tokenizers.target, target[i].tolist())
        expected = [[(s, t) in links for s in sources] for t in targets]
        assert linked[i].tolist() == expected
    assert linked.any()
    assert not linked[list(batch.rows).index(1)].any()


def test_marks_are_words_of_their_own_however_they_are_written() -> None:
    known_tokenizers = tokenizers()
    links = "0-0 1-1 2-2 3-4 4-3 5-4"  # el gato , ¿ duerme ? = the cat ... sleeps ?
    pair = Pair("el gato, ¿duerme?", "the cat... sleeps ?", links=links)
    batch = Epochs([pair], known_tokenizers, UNSAMPLED).part(0, 0).batch
    guide = Guide(GuideSettings(words="marks"), [pair], known_tokenizers)
    pieces = known_tokenizers.source.pieces(batch.source[0].tolist())
    written_pieces = known_tokenizers.target.pieces(batch.target_in[0].tolist())
    # Characters that the tokenizer has not are bytes, and marks.
    source = [0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5, -1]
    assert "".join(pieces).replace("\u2581", " ") == " el gato<0x2C> <0xC2><0xBF>duerme<0x3F></s>"
    target = [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4]
    assert "".join(written_pieces).replace("\u2581", " ") == "<s> the cat... sleeps <0x3F>"
    linked = {tuple(map(int, link.split("-"))) for link in links.split()}
    expected = [[(s, t) in linked for s in source] for t in target]
    assert guide.linked(batch)[0].tolist() == expected
    with pytest.raises(DataError, match="has 3 words"):
        Guide(GuideSettings(), [pair], known_tokenizers)


def test_a_pair_with_a_word_that_its_tokenizer_drops_teaches_nothing() -> None:
    known_tokenizers = tokenizers()
    pairs = [
        Pair("el \ufeff gato negro", "the black cat", links="0-0 2-2 3-1"),
        Pair("el gato", "the \x07", links="0-1"),
        Pair("el gato", "the cat", links="0-0 1-1"),
    ]
    batch = Epochs(pairs, known_tokenizers, UNSAMPLED).part(0, 0).batch
    linked = Guide(GuideSettings(), pairs, known_tokenizers).linked(batch)
    taught = {int(row): bool(linked[i].any()) for i, row in enumerate(batch.rows)}
    assert taught == {0: False, 1: False, 2: True}


def test_a_tag_belongs_to_no_word() -> None:
    known_tokenizers = tokenizers("2fr")
    plain = Epochs(PAIRS, known_tokenizers, UNSAMPLED).part(0, 0).batch
    texts = [pair._replace(tags=("2fr",)) for pair in PAIRS]
    tagged = Epochs(texts, known_tokenizers, UNSAMPLED).part(0, 0).batch
    guide = Guide(GuideSettings(), PAIRS, known_tokenizers)
    without_tag, with_tag = guide.linked(plain), guide.linked(tagged)
    order = [list(tagged.rows).index(row) for row in plain.rows]
    assert not with_tag[:, :, 0].any()
    assert torch.equal(with_tag[order][:, :, 1:], without_tag)


def test_the_loss_is_the_cross_entropy_of_linked_pieces_and_has_their_gradient() -> None:
    known_tokenizers = tokenizers()
    batch = Epochs(PAIRS, known_tokenizers, UNSAMPLED).part(0, 0).batch
    shape = (*batch.target_in.shape[:1], 2, batch.target_in.shape[1], 5)
    query = torch.randn(shape, requires_grad=True)
    key = torch.randn(shape[0], 2, batch.source.shape[1], 5)
    guide = Guide(GuideSettings(head=1), PAIRS, known_tokenizers)
    loss = guide.loss(regard.look(query, key), batch)
    log = torch.log_softmax(query[:, 1] @ key[:, 1].mT / 5**0.5, -1)
    expected = torch.zeros(())
    for row, at in guide.linked(batch).any(-1).nonzero().tolist():
        links = guide.linked(batch)[row, at]
        expected = expected - log[row, at][links].mean()
    assert torch.allclose(loss, expected, rtol=1e-5)
    loss.backward()
    assert query.grad is not None
    assert query.grad[:, 0].abs().max() == 0 < query.grad[:, 1].abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("precision", ["vectors", "weights"])
def test_the_loss_of_looks_in_half_precision_is_summed_in_single(
    precision: str, dtype: torch.dtype
) -> None:
    """A look computes weights of half vectors in float32; weights that were stored stay halves."""
    known_tokenizers = tokenizers()
    batch = Epochs(PAIRS, known_tokenizers, UNSAMPLED).part(0, 0).batch
    draw = torch.Generator().manual_seed(0)
    rows, (target, source) = len(batch.rows), (batch.target_in.shape[1], batch.source.shape[1])
    look = regard.look(
        torch.randn(rows, 2, target, 8, generator=draw).to(dtype),
        torch.randn(rows, 2, source, 8, generator=draw).to(dtype),
    )
    if precision == "weights":
        look = StoredLook(look.weights().to(dtype))
    guide = Guide(GuideSettings(), PAIRS, known_tokenizers)
    linked = guide.linked(batch).double()
    even = linked / linked.sum(-1, keepdim=True).clamp(min=1)
    with torch.autocast("cpu", dtype=dtype):
        weights = look.weights()
        loss = guide.loss(look, batch)
    assert weights.dtype == (dtype if precision == "weights" else torch.float32)
    expected = -(even * weights.double().mean(1).log()).sum()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0.0)


def test_links_beyond_the_words_are_refused() -> None:
    with pytest.raises(DataError, match=r'link 4-0: "el gato negro duerme\." has 4 words'):
        Guide(GuideSettings(), [PAIRS[0]._replace(links="0-0 4-0")], tokenizers())
    with pytest.raises(DataError, match="x-1"):
        Guide(GuideSettings(), [PAIRS[0]._replace(links="x-1")], tokenizers())


def guided(
    folder: Path, *changes: str, model: str = "transformer", lines: int | None = None
) -> tiny.Trainer:
    """The tiny corpus swaps two words: links cross."""
    (folder / "links").write_text("0-1 1-0\n" * (len(tiny.PAIRS) if lines is None else lines))
    settings = (f"data.train.links={folder / 'links'}", "training.guide.weight=1.0", *changes)
    return tiny.trainer(folder, *settings, model=model)


@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_a_head_learns_the_links_it_is_taught(tmp_path: Path, model: str) -> None:
    steps = 40 if model == "transformer" else 120
    counts = [
        f"training.{count}={steps}" for count in ("max_steps", "validate_every", "save_every")
    ]
    more = [*counts, "training.guide.weight=5.0"]
    more += ["training.guide.head=1"] if model == "transformer" else []
    trainer = guided(tmp_path, *more, model=model)
    largest = trainer.epochs.largest()
    guide = trainer._learner.objective.guide
    assert guide is not None

    def crossed() -> float:
        """What linked words look at where they ought to."""
        batch = largest.batch
        looks = trainer.model.eval().looks(batch.source, batch.source_lengths, batch.target_in)
        head = 1 if model == "transformer" else 0
        weights = looks["decoder.0.cross"].weights()[:, head].detach()
        linked = guide.linked(batch)
        return float((weights * linked).sum() / linked.any(-1).sum())

    entropy_before = crossed()
    assert trainer.train() == "finished"
    assert entropy_before < 0.4
    assert crossed() > 0.5


def test_a_guided_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "straight").mkdir(), (tmp_path / "stopped").mkdir()
    straight = guided(tmp_path / "straight")
    straight.train()
    tiny.stop_at(guided(tmp_path / "stopped"), 5)
    resumed = tiny.prepare_resumed(tmp_path / "stopped" / "run")
    resumed.train()
    for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_links_they_are_learnt_from_the_text(tmp_path: Path) -> None:
    trainer = tiny.trainer(tmp_path, "training.guide.weight=1.0")
    guide = trainer._learner.objective.guide
    assert guide is not None
    links = [tuple(link) for link in guide._links.tolist()]
    assert set(links) == {(0, 1), (1, 0)}
    assert len(links) == 2 * len(tiny.PAIRS)


def test_links_need_a_guide_and_must_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no \[training\.guide\]"):
        tiny.trainer(tmp_path, "data.train.links=links")
    for change, message in (
        ("training.guide.layer=1", "the decoder has 1 layers"),
        ("training.guide.head=2", "there are 2 heads"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            guided(tmp_path, change)
    with pytest.raises(DataError, match=f"has 3 lines of word links for {len(tiny.PAIRS)} lines"):
        guided(tmp_path, lines=3)
