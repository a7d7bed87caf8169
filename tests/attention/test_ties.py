"""The first of equal keys: products with them are rounded differently at different places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.normalisers import Hard

SCORES: dict[str, Callable[[int], Any]] = {
    "dot": lambda width: "dot",
    "scaled_dot": lambda width: "scaled_dot",
    "cosine": lambda width: "cosine",
    "cap": lambda width: regard.scores.SoftCap("dot", 50.0),
    "general": lambda width: regard.scores.General(width, width),
    "additive": lambda width: regard.scores.Additive(width, width, 7),
}
CALLS = [
    lambda *of, **how: regard.attend(*of, torch.eye(of[1].shape[-2], dtype=of[0].dtype), **how),
    lambda *of, **how: regard.look(*of, **how).weights(),
    lambda *of, **how: regard.read(*of, of[1], **how)[1].weights(rows=range(of[0].shape[-2])),
    lambda *of, **how: torch.nn.functional.one_hot(
        regard.look(*of, **how).argmax(), of[1].shape[-2]
    ).to(of[0].dtype),
]


def vectors(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def copies(width: int, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return vectors(2, 1, width, seed=1, dtype=dtype).repeat(1, count, 1)


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_the_first_of_equal_keys_is_read(score: str, dtype: torch.dtype, kernel: str) -> None:
    for width, count in ((3, 9), (17, 9), (33, 13)):
        torch.manual_seed(0)
        built = SCORES[score](width)
        built = built.to(dtype) if isinstance(built, torch.nn.Module) else built
        query, key = vectors(2, 40, width, seed=2, dtype=dtype), copies(width, count, dtype)
        for call in CALLS:
            with regard.kernel(kernel):
                weights = call(query, key, score=built, normaliser="hard")
            assert weights[..., 0].eq(1).all()
            assert weights[..., 1:].eq(0).all()


@pytest.mark.parametrize("call", CALLS)
def test_a_mask_and_a_bias_tell_equal_keys_apart(call: Any) -> None:
    query, key = vectors(2, 40, 17, seed=2), copies(17, 9)
    options: dict[str, Any] = {"normaliser": "hard"}
    assert call(query, key, mask=masks.causal(align="start"), **options)[..., 0].eq(1).all()
    assert call(query, key, mask=torch.arange(9) >= 4, **options)[..., 4].eq(1).all()
    bias = torch.zeros(9, dtype=torch.float64).index_fill(0, torch.tensor([3, 6]), 1e-9)
    assert call(query, key, bias=bias, **options)[..., 3].eq(1).all()
    bias = torch.zeros(9, dtype=torch.float64).index_fill(0, torch.tensor([0, 2]), -torch.inf)
    assert call(query, key, bias=bias, **options)[..., 1].eq(1).all()


def test_keys_that_are_almost_equal_are_not_equal() -> None:
    query = torch.ones(1, 4, dtype=torch.float64)
    key = torch.ones(3, 4, dtype=torch.float64)
    key[1:, 0] += 1e-12
    assert regard.look(query, key, normaliser="hard").argmax().tolist() == [1]


def test_gradients_are_those_of_the_softmax_of_the_scores() -> None:
    query, key = vectors(2, 40, 17, seed=2), copies(17, 9).requires_grad_()
    value = vectors(2, 9, 3, seed=3)
    weigh = Hard(gradient="straight_through")
    reading = regard.attend(query, key, value, normaliser=weigh)
    torch.testing.assert_close(reading, value[:, :1].expand_as(reading))
    upstream = vectors(*reading.shape, seed=4)
    (gradient,) = torch.autograd.grad(reading, key, upstream)
    (expected,) = torch.autograd.grad(regard.attend(query, key, value), key, upstream)
    torch.testing.assert_close(gradient, expected)


def test_a_memory_reads_the_first_of_equal_keys() -> None:
    for normaliser in ("hard", "softmax"):
        memory = regard.Memory(normaliser=normaliser)
        memory.write(copies(17, 9)[0], payloads=[*"abcdefghi"])
        query = vectors(40, 17, seed=2)
        assert memory.find(query, 1).payloads == [["a"]] * 40
    memory.normaliser = "hard"
    assert memory[query] == ["a"] * 40
