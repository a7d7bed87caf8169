"""A score with parameters for each head over a head axis of size 1: it broadcasts, as batch axes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.scores import Additive, General, Score, SoftCap

SCORES: dict[str, Callable[[], Any]] = {
    "general": lambda: General(4, 4, heads=3),
    "additive": lambda: Additive(4, 4, 5, heads=3, bias=True),
    "capped": lambda: SoftCap(General(4, 4, heads=3), 2.0),
}
# The batch axes of query, key and value.
BATCHES = {
    "all": ((2, 1), (2, 1), (2, 1)),
    "no key batch": ((2, 1), (1,), (2, 1)),
    "one head of queries": ((2, 1), (2, 3), (2, 1)),
    "none": ((), (), ()),
}


def sides(batches: str) -> list[Tensor]:
    torch.manual_seed(0)
    lengths = zip(BATCHES[batches], (5, 6, 6), strict=True)
    return [
        torch.randn(*batch, length, 4, dtype=torch.float64, requires_grad=True)
        for batch, length in lengths
    ]


def expanded(tensors: list[Tensor]) -> list[Tensor]:
    batch = (2, 3) if any(tensor.ndim == 4 for tensor in tensors) else (3,)
    return [tensor.expand(*batch, *tensor.shape[-2:]) for tensor in tensors]


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("name", SCORES)
def test_one_head_of_vectors_serves_all_heads_of_the_score(name: str, batches: str) -> None:
    score, tensors = SCORES[name]().double(), sides(batches)
    mask = regard.masks.causal(align="end")
    leaves = [*tensors, *score.parameters()]
    expected = regard.attend(*expanded(tensors), score=score, mask=mask)
    reading, look = regard.read(*tensors, score=score, mask=mask)
    torch.testing.assert_close(reading, expected)
    torch.testing.assert_close(regard.attend(*tensors, score=score, mask=mask), expected)
    for gradient, expected_gradient in zip(
        torch.autograd.grad(reading.square().sum(), leaves),
        torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected_gradient)
    query, key, _ = tensors
    dense = regard.look(*expanded([query, key]), score=score, mask=mask)
    with torch.no_grad():
        weights = dense.weights().expand(*expected.shape[:-1], 6)
        for answers in (look, regard.look(query, key, score=score, mask=mask)):
            torch.testing.assert_close(answers.weights().expand(weights.shape), weights)
            torch.testing.assert_close(
                answers.received().expand(*weights.shape[:-2], 6), weights.sum(-2)
            )
            torch.testing.assert_close(answers.mean_heads().weights(), weights.mean(-3))


@pytest.mark.parametrize("kernel", ["reference", "blocked", "sdpa", "matmul"])
@pytest.mark.parametrize(
    "mask", [None, regard.masks.band(2, 0), regard.masks.padding([6, 2])], ids=str
)
def test_every_kernel_gives_the_heads_of_the_score(kernel: str, mask: Any) -> None:
    score, tensors = SCORES["general"]().double(), sides("all")
    with torch.no_grad():
        expected = regard.attend(*expanded(tensors), score=score, mask=mask)
        with regard.kernel(kernel):
            torch.testing.assert_close(regard.attend(*tensors, score=score, mask=mask), expected)


@pytest.mark.parametrize("name", SCORES)
def test_other_heads_are_refused_in_a_sentence(name: str) -> None:
    score, tensor = SCORES[name](), torch.randn(2, 2, 5, 4)
    calls: list[Callable[[], Any]] = [
        lambda: regard.attend(tensor, tensor, tensor, score=score),
        lambda: regard.look(tensor, tensor, score=score),
        lambda: regard.read(tensor, tensor, tensor, score=score),
    ]
    for call in calls:
        with pytest.raises(regard.ShapeError, match=r"heads=\[3\].* batch axes \[2, 2\]"):
            call()


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", SCORES)
def test_multi_head_attention_refuses_a_score_of_other_heads(name: str, heads: int) -> None:
    with pytest.raises(regard.ShapeError, match=rf"heads=\[3\], this attention has \[{heads}\]"):
        regard.MultiHeadAttention(4 * heads, heads=heads, score=SCORES[name]())


@pytest.mark.parametrize("score", [General(4, 4), General(4, 4, heads=1), General(4, 4, heads=2)])
def test_multi_head_attention_takes_scores_of_its_heads_and_of_one(score: Score) -> None:
    attention = regard.MultiHeadAttention(8, heads=4, key_heads=2, score=score, d_head=4)
    assert attention(torch.randn(2, 5, 8)).shape == (2, 5, 8)
