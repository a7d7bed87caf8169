"""Searches in a memory: their order, and the work that is kept between them."""

import unicodedata
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from regard.memory import CharacterNgrams, Memory
from regard.scores import Additive, Cosine, General, ScaledDot


def hashed(text: str, width: int, shortest: int, longest: int) -> torch.Tensor:
    """Definition 1 of arXiv 0902.2206, one n-gram after another."""
    text = "\x02" + unicodedata.normalize("NFC", text).casefold() + "\x03"
    grams = [text[a:b] for a in range(len(text)) for b in range(a + 1, len(text) + 1)]
    counted = [g for g in grams if shortest <= len(g) <= longest and g not in "\x02\x03"] + [text]
    vector = torch.zeros(width)
    for gram in counted:
        code = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
        vector[(code >> 1) % width] += 1 if code & 1 else -1
    return F.normalize(vector, dim=0)


@given(
    st.lists(st.text(max_size=12), max_size=4),
    st.sampled_from([(512, 1, 3), (7, 2, 5), (64, 3, 3), (33, 4, 40), (5, 1, 1)]),
)
def test_vectors_of_strings_are_their_hashed_n_grams(strings, sizes):
    vectors = CharacterNgrams(*sizes)(strings)
    assert vectors.shape == (len(strings), sizes[0])
    for vector, string in zip(vectors, strings, strict=True):
        torch.testing.assert_close(vector, hashed(string, *sizes), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "normaliser", ["softmax", "hard", "sparsemax", lambda rows: rows.softmax(-1)]
)
@pytest.mark.parametrize(
    "score", [None, Cosine(3.0), Additive(4, 4, 6)], ids=["dot", "cosine", "additive"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_best_are_ordered_by_weight_then_score_then_place(normaliser, score, dtype):
    generator = torch.Generator().manual_seed(3)
    keys = torch.randint(-2, 3, (60, 4), generator=generator).to(dtype)  # with equal ones
    queries = torch.randint(-2, 3, (9, 4), generator=generator).to(dtype)
    memory = Memory(score=score, normaliser=normaliser)
    memory.write(keys, payloads=list(range(60)))
    result = memory.find(queries, 7)
    weights = memory.look(queries).weights()
    torch.testing.assert_close(result.weights, weights.gather(-1, result.positions))
    scores = (
        (score or ScaledDot())(queries.double(), keys.double())
        if not isinstance(score, nn.Module)
        else None
    )
    assert result.payloads == result.positions.tolist()
    if scores is not None and dtype == torch.float32:
        for row, places in zip(scores, result.positions.tolist(), strict=True):
            order = sorted(range(60), key=lambda place: (-round(row[place].item(), 6), place))
            assert places == order[:7]


@pytest.mark.parametrize(
    "score",
    [Cosine(20.0), General(4, 4), Additive(4, 4, 6)],
    ids=lambda score: type(score).__name__,
)
def test_kept_work_follows_every_change_of_keys_and_parameters(score):
    query = torch.randn(2, 4)
    memory = Memory(score=score)
    memory.write(torch.randn(5, 4))

    def check() -> None:
        with torch.no_grad():
            expected = (score(query, memory.keys)).softmax(-1)
            torch.testing.assert_close(memory.look(query).weights(), expected)
            weights = memory.find(query, 3).weights
            torch.testing.assert_close(weights, expected.topk(3).values)

    check()
    memory.write(torch.randn(1, 4))
    check()
    memory.write(torch.randn(40, 4))
    check()
    memory.keys[0] += 1.0
    check()
    memory.load_state_dict({**memory.state_dict(), "entries.key": torch.randn(46, 4)})
    check()
    for parameter in score.parameters() if isinstance(score, nn.Module) else ():
        parameter.data.add_(1.0)
        with torch.no_grad():
            parameter.mul_(0.5)
    check()
    memory.to(torch.float64)
    query = query.double()
    check()


def test_gradients_reach_a_score_and_keys_that_were_searched_before():
    memory = Memory(score=General(4, 4), trainable="keys")
    memory.write(torch.randn(5, 4))
    query = torch.randn(1, 4)
    with torch.no_grad():
        memory.find(query)
    memory.find(query).weights[0, 0].backward()
    assert memory.keys.grad.any()
    assert all(each.grad.any() for each in memory.score.parameters())


def test_many_queries_are_searched_in_blocks(monkeypatch):
    memory = Memory()
    memory.write(torch.randn(30, 4))
    queries = torch.randn(7, 4)
    together = memory.find(queries, 4)
    monkeypatch.setattr("regard.memory.reading.ROOM", 60)
    apart = memory.find(queries, 4)
    assert torch.equal(apart.positions, together.positions)
    torch.testing.assert_close(apart.weights, together.weights)
