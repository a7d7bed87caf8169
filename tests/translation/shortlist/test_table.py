"""What a shortlist holds, and that its file is believed only when it is whole and belongs to the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from regard.errors import CheckpointError, DataError, ModelError
from regard.translation.runs import Run, Tokenizers
from regard.translation.shortlist import table
from regard.translation.shortlist.making import Coverage, coverage, make
from regard.translation.shortlist.table import Shortlist
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import EOS, Tokenizer
from regard.translation.translator import bundled

DICTIONARY = {"uno": "one", "dos": "two", "tres": "three", "cuatro": "four", "cinco": "five"}
PAIRS = [
    Pair(f"{a} {b} 77", f"{DICTIONARY[a]} {DICTIONARY[b]} 77")
    for a in DICTIONARY
    for b in DICTIONARY
] * 9


@pytest.fixture(scope="module")
def apart() -> Tokenizers:
    """Tokenizers of two vocabularies."""
    source, target = ([pair[side] for pair in PAIRS] for side in (0, 1))
    return Tokenizers(
        Tokenizer.train(source, vocabulary_size=310), Tokenizer.train(target, vocabulary_size=320)
    )


@pytest.fixture(scope="module")
def shortlist(apart: Tokenizers) -> Shortlist:
    return make(PAIRS, apart, each=4, always=2).shortlist


def test_a_list_has_translations_and_what_is_copied(shortlist, apart):
    listed = shortlist.of(apart.source.encode("tres 77")).tolist()
    assert set(apart.target.encode("three 77")) <= set(listed)
    assert listed == sorted(set(listed))
    assert EOS not in listed
    # A name that was never seen comes over in the pieces, and at last the bytes, that both sides have.
    pieces = apart.source.pieces(apart.source.encode("Ž"))
    listed = apart.target.pieces(shortlist.of(apart.source.encode("Ž")).tolist())
    assert {piece for piece in pieces if piece.startswith("<0x")} <= set(listed)


def test_what_is_measured_was_not_learnt_from(apart):
    made = make(PAIRS, apart, each=20)
    assert (made.learnt, made.measured) == (len(PAIRS) - 3, 3)
    assert made.coverage.words == made.coverage.sentences == 1


def test_coverage_counts_pieces_and_sentences():
    shortlist = Shortlist(torch.tensor([9]), torch.tensor([[-1, -1]] * 4 + [[5, 6], [7, -1]]), 10)
    found = coverage(shortlist, [([4], [5, 6, 9]), ([5], [7, 5, 5, 9]), ([4, 5], [7])])
    assert found == Coverage(words=6 / 8, sentences=2 / 3, length=(3 + 2 + 4) / 3)


def test_a_shortlist_of_one_pair_is_refused(apart):
    with pytest.raises(DataError, match="1 usable sentence pairs"):
        make(PAIRS[:1], apart)


def test_long_and_empty_pairs_are_left_out(apart):
    bad = [Pair("uno " * 3000, "one " * 3000), Pair("", "one"), Pair("uno", "")]
    made = make([*PAIRS, *bad], apart, each=20)
    assert (made.left_out, made.learnt + made.measured) == (3, len(PAIRS))
    with pytest.raises(DataError, match="0 usable sentence pairs"):
        make(bad, apart)


def test_a_list_has_no_special_words(apart):
    shortlist = Shortlist(torch.tensor([1, 9]), torch.tensor([[0, 1]] * 4 + [[2, 12]]), 20)
    assert shortlist.of([4]).tolist() == [9, 12]
    assert coverage(shortlist, [([4], [1])]).words == 0


def test_it_is_no_wider_than_what_was_found(apart):
    assert make(PAIRS, apart, each=10_000).shortlist.likely.shape[1] < 30


@pytest.fixture
def run(tmp_path: Path, shortlist: Shortlist, apart: Tokenizers) -> Run:
    """The folder of a run, as far as shortlists go."""
    made = Run(tmp_path, Run.open(bundled()["es-en"]).configuration)
    shortlist.keep(made, apart)
    return made


def test_it_comes_back_from_its_file(run, shortlist, apart):
    found = Shortlist.open(run, apart)
    assert torch.equal(found.always, shortlist.always)
    assert torch.equal(found.likely, shortlist.likely)


def spoilt(**changes):
    return lambda tensors: tensors.update(changes)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda tensors: tensors.pop("always"), "tensor 'always' is missing"),
        (spoilt(more=torch.zeros(1)), "tensor 'more' has no place in it"),
        (spoilt(tokenizers=torch.zeros(32, dtype=torch.uint8)), "made for other tokenizers"),
        (lambda t: t["likely"][3].fill_(10_000), "its ids do not fit"),
        (lambda t: t["likely"][3].fill_(-2), "its ids do not fit"),
        (lambda t: t["always"].fill_(-1), "its ids do not fit"),
        (spoilt(always=torch.zeros(2)), "its ids do not fit"),
        (spoilt(likely=torch.zeros(3, 2, dtype=torch.int16)), "its ids do not fit"),
        (spoilt(likely=torch.zeros(0, dtype=torch.int16)), "its ids do not fit"),
    ],
)
def test_a_file_that_is_not_right_is_refused_by_its_name(run, apart, spoil, expected):
    path = run.folder / "shortlist.safetensors"
    tensors = safetensors.torch.load_file(path)
    spoil(tensors)
    if {"always", "likely"} <= tensors.keys():  # by somebody who knows what he does
        tensors["sum"] = table._sum(tensors["always"], tensors["likely"])
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(CheckpointError, match=expected) as refused:
        Shortlist.open(run, apart)
    assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize(
    "spoil",
    [
        spoilt(always=torch.zeros(2, dtype=torch.bfloat16)),
        lambda t: t["likely"][7].fill_(9),
        lambda t: t["sum"].fill_(0),
    ],
)
def test_a_file_that_was_changed_is_told_by_its_sum(run, apart, spoil):
    path = run.folder / "shortlist.safetensors"
    tensors = safetensors.torch.load_file(path)
    spoil(tensors)
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(CheckpointError, match="its checksum is not that of its lists"):
        Shortlist.open(run, apart)


def test_half_a_file_and_none_are_refused(run, apart):
    path = run.folder / "shortlist.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="corrupted or truncated"):
        Shortlist.open(run, apart)
    path.unlink()
    with pytest.raises(ModelError, match=r"has no shortlist: `regard shortlist --model .*` makes"):
        Shortlist.open(run, apart)
