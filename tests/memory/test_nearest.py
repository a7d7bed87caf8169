"""Approximate search: the entries it finds have their exact scores, and with all lists it is `find`."""

import pytest
import torch

from regard.attention.shapes import ShapeError
from regard.memory import CharacterNgrams, EmptyMemoryError, Memory, NearestIndex
from regard.scores import Additive, Cosine, Dot, General, SoftCap

WIDTH = 12


def near(count, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(0))
    picks = torch.randint(20, (count,), generator=generator)
    return centres[picks] + torch.randn(count, WIDTH, generator=generator)


@pytest.mark.parametrize(
    "score", [None, Dot(), Cosine(20.0), General(WIDTH, WIDTH), SoftCap(Dot(), 50.0)], ids=str
)
@pytest.mark.parametrize("place", ["in RAM", "in a folder"])
@torch.no_grad()
def test_all_lists_give_what_find_gives(tmp_path, score, place):
    pytest.importorskip("faiss")
    memory = Memory(score=score)
    if place == "in a folder":
        memory = Memory.open(tmp_path / "m", write=True, score=score)
    memory.write(near(500, 1), payloads=list(range(500)))
    if place == "in a folder":
        memory.delete(range(0, 500, 7))
    index, queries = NearestIndex(memory, 16), near(9, 2)
    exact, every = memory.find(queries, 3), index.find(queries, 3, probes=16)
    if type(score) is not SoftCap:  # whose largest scores are equal
        assert every.payloads == exact.payloads
        assert index.recall(queries, 3, probes=16) == 1
    nearest = index.find(queries, 3, probes=1)
    scores = (memory.score or (lambda q, k: q @ k.mT / WIDTH**0.5))(queries, memory.keys)
    is_filled = nearest.positions >= 0  # a list may hold fewer than 3
    exact_scores = scores.gather(-1, nearest.positions.clamp(min=0))
    torch.testing.assert_close(
        nearest.scores[is_filled], exact_scores[is_filled], atol=1e-4, rtol=1e-5
    )
    assert 0.3 < index.recall(queries, 3, probes=1) <= 1


def test_lists_that_hold_too_few(tmp_path):
    pytest.importorskip("faiss")
    memory = Memory(encoder=CharacterNgrams())
    memory.write(["Subject", "Object"], payloads=["he", "it"])
    nearest = NearestIndex(memory, 2).find("subjects", 2, probes=1)
    assert nearest.payloads == [["he", None]]
    assert nearest.positions.tolist() == [[0, -1]]
    assert nearest.scores[0, 1] == -torch.inf


def test_memories_that_have_no_index():
    pytest.importorskip("faiss")
    with pytest.raises(EmptyMemoryError):
        NearestIndex(Memory())
    memory = Memory(score=Additive(WIDTH, WIDTH, 4))
    memory.write(near(5, 1))
    with pytest.raises(ValueError, match="an index needs products"):
        NearestIndex(memory)
    memory = Memory()
    memory.write(near(5, 1))
    index = NearestIndex(memory)
    memory.write(near(5, 1))
    with pytest.raises(
        ValueError, match="the memory has 10 entries, the index 5: make the index again"
    ):
        index.find(near(1, 2))


def test_keys_changed_in_place_need_another_index():
    pytest.importorskip("faiss")
    memory = Memory()
    memory.write(near(5, 1))
    index = NearestIndex(memory)
    index.find(near(1, 2))
    memory.entries.key[0] += 1
    with pytest.raises(ValueError, match="entries of the memory have changed"):
        index.find(near(1, 2))


def test_keys_with_batch_axes_have_no_index(monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr("regard.memory.entries.AT_ONCE", 4)
    memory = Memory()
    memory.write(near(15, 1).view(3, 5, WIDTH))
    with pytest.raises(ValueError, match="the keys have batch axes"):
        NearestIndex(memory)


def test_queries_that_fit_no_index():
    pytest.importorskip("faiss")
    memory = Memory()
    memory.write(near(50, 1))
    index = NearestIndex(memory)
    with pytest.raises(ShapeError, match="5 wide"):
        index.find(torch.ones(1, 5))
    with pytest.raises(ValueError, match="k is 0: pass at least 1"):
        index.find(near(1, 2), 0)
    with pytest.raises(ValueError, match="probes is 0: pass at least 1"):
        index.find(near(1, 2), probes=0)
    with pytest.raises(ValueError, match="lists is -3: pass at least 1"):
        NearestIndex(memory, -3)
    memory.score = Dot()
    torch.testing.assert_close(
        index.find(near(9, 2), 3, probes=40).scores, (near(9, 2) @ memory.keys.mT).topk(3).values
    )
    memory.score = Cosine()
    with pytest.raises(ValueError, match="another score by now: make the index again"):
        index.find(near(1, 2))
    batches = Memory()
    batches.write(near(50, 1).view(2, 25, WIDTH))
    with pytest.raises(ValueError, match="batch axes"):
        NearestIndex(batches)


@torch.no_grad()
@pytest.mark.parametrize("cap", [0.0, 50.0])
def test_general_has_queries_of_another_width(cap):
    pytest.importorskip("faiss")
    score = General(5, WIDTH)
    memory = Memory(score=SoftCap(score, cap) if cap else score)
    memory.write(near(50, 1))
    query = torch.randn(3, 5)
    nearest = NearestIndex(memory, 4).find(query, 2, probes=4)
    assert torch.equal(nearest.positions, memory.find(query, 2).positions)


def test_an_entry_that_is_replaced_on_the_disk_has_another_place(tmp_path):
    pytest.importorskip("faiss")
    memory = Memory.open(tmp_path / "m", write=True)
    keys = near(50, 1)
    memory.write(keys, payloads=list(range(50)))
    index = NearestIndex(memory)
    memory[keys[0]] = {"new": True}
    with pytest.raises(ValueError, match="make the index again"):
        index.find(keys[:1])


def test_without_faiss_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    memory = Memory()
    memory.write(near(5, 1))
    with pytest.raises(ImportError, match=r"pip install 'regard\[faiss\]'"):
        NearestIndex(memory)
