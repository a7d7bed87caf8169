"""Derivatives beside those of torch.autograd.grad, for requests that a fast kernel serves otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import regard
from regard.attention import masks, scores
from regard.attention.kernels.choose import KernelRefusedError

torch.manual_seed(0)
QUERY, KEY, TANGENT = torch.randn(2, 64, 8), torch.randn(2, 300, 8), torch.randn(2, 64, 8)
SCORES = {"sdpa": None, "cpu": scores.Additive(8, 8, 64).requires_grad_(False)}
FAST = pytest.mark.parametrize("kernel", list(SCORES))


def read(query: Tensor, kernel: str) -> Tensor:
    mask = masks.padding([300, 7])
    return regard.attend(query, KEY, KEY, score=SCORES[kernel], mask=mask)


def exact(kernel: str) -> Tensor:
    with regard.kernel("reference"):
        return torch.func.jvp(lambda query: read(query, kernel), (QUERY,), (TANGENT,))[1]


def duals(function: Callable[[Tensor], Tensor]) -> Tensor:
    with forward_ad.dual_level():
        reading = function(forward_ad.make_dual(QUERY, TANGENT))
        return forward_ad.unpack_dual(reading).tangent


def by_columns(function: Callable[[Tensor], Tensor]) -> Tensor:
    step = lambda share: function(QUERY + share * TANGENT)  # noqa: E731
    return torch.func.jacfwd(step)(torch.zeros(()))


FORWARDS: dict[str, Any] = {
    "jvp": lambda function: torch.func.jvp(function, (QUERY,), (TANGENT,))[1],
    "jacfwd": by_columns,
    "dual": duals,
}


@FAST
@pytest.mark.parametrize("mode", list(FORWARDS))
def test_forward_mode_is_right_where_no_kernel_is_pinned(kernel: str, mode: str) -> None:
    assert regard.explain(QUERY, KEY, score=SCORES[kernel]).kernel == kernel
    expected = exact(kernel)
    actual = FORWARDS[mode](lambda query: read(query, kernel))
    assert expected.abs().max() > 1e-3
    assert torch.allclose(actual, expected, atol=1e-5)


@FAST
@pytest.mark.parametrize("mode", list(FORWARDS))
def test_a_pinned_kernel_without_forward_mode_names_one_that_has_it(kernel: str, mode: str) -> None:
    other_kernel = {"sdpa": "matmul", "cpu": "blocked"}[kernel]
    refusal = pytest.raises(KernelRefusedError, match=rf"pin regard.kernel\('{other_kernel}'\)")
    with regard.kernel(kernel), refusal:
        FORWARDS[mode](lambda query: read(query, kernel))
    with regard.kernel(other_kernel):
        actual = FORWARDS[mode](lambda query: read(query, kernel))
    assert torch.allclose(actual, exact(kernel), atol=1e-5)


@FAST
@pytest.mark.parametrize("compiled", [False, True])
def test_functional_gradients_are_those_of_autograd(kernel: str, compiled: bool) -> None:
    def total(query: Tensor) -> Tensor:
        return read(query, kernel).sin().sum()

    query = QUERY.clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(query), query)
    functional = torch.func.grad(total)
    if compiled:
        functional = torch.compile(functional, backend="aot_eager")
    assert torch.allclose(functional(QUERY), expected, atol=1e-6)


def test_a_pinned_kernel_without_functional_gradients_names_one_that_has_them() -> None:
    refusal = pytest.raises(KernelRefusedError, match=r"pin regard.kernel\('blocked'\)")
    with regard.kernel("cpu"), refusal:
        torch.func.grad(lambda query: read(query, "cpu").sum())(QUERY)


def test_what_is_only_mapped_keeps_the_fast_kernel() -> None:
    with regard.kernel("cpu"):
        actual = torch.vmap(lambda query, key: regard.attend(query, key, key, score=SCORES["cpu"]))(
            QUERY, KEY
        )
    assert torch.allclose(actual, regard.attend(QUERY, KEY, KEY, score=SCORES["cpu"]), atol=1e-6)


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("normaliser", ["sparsemax", "entmax"])
def test_sparse_weights_are_trained_in_one_compiled_graph(normaliser: str, kernel: str) -> None:
    def read(query: Tensor) -> Tensor:
        with regard.kernel(kernel):
            return regard.attend(query, KEY[:, :9], KEY[:, :9], normaliser=normaliser)

    query = QUERY[:, :5].clone().requires_grad_()
    compiled = torch.compile(read, fullgraph=True, backend="aot_eager")
    readings = read(query), compiled(query)
    assert torch.allclose(*readings, atol=1e-6)
    slopes = [torch.autograd.grad(reading.sin().sum(), query)[0] for reading in readings]
    assert slopes[0].any()
    assert torch.allclose(*slopes, atol=1e-6)


@pytest.mark.parametrize("kernel", ["matmul", "sdpa", "blocked", "reference"])
@pytest.mark.parametrize("randomness", ["different", "same"])
def test_dropout_follows_the_randomness_of_vmap(kernel: str, randomness: str) -> None:
    def read(query: Tensor) -> Tensor:
        with regard.kernel(kernel):
            return regard.attend(query, KEY[0], KEY[0], dropout=0.5)

    first_readings, second_readings = torch.vmap(read, randomness=randomness)(
        QUERY[:1].expand(2, -1, -1)
    )
    assert torch.equal(first_readings, second_readings) == (randomness == "same")
