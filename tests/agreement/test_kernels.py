"""Every kernel, pinned, against the float64 reference: values and gradients."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from tests.agreement.cases import CASES, Case
from tests.agreement.comparing import TOLERANCE, compare
from torch import Tensor, nn

import regard
from regard.attention.kernels.choose import KERNELS, KernelRefusedError


def answer(kernel: str, arguments: dict[str, Any]) -> dict[str, Tensor | None]:
    """The reading, and the gradient of a fixed function of it for every leaf."""
    with regard.kernel(kernel):
        reading = regard.attend(**arguments)
    leaves = {n: a for n, a in arguments.items() if isinstance(a, Tensor) and a.requires_grad}
    if isinstance(arguments["score"], nn.Module):
        leaves |= dict(arguments["score"].named_parameters())
    mixture = torch.linspace(-1, 1, reading.numel(), device="cpu").sin().view(reading.shape)
    total = (reading * mixture.to(reading)).sum()
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {"reading": reading} | {
        f"{name} gradient": g for name, g in zip(leaves, gradients, strict=True)
    }


def serves(kernel: str, case: Case) -> bool:
    if kernel == "cpu":
        return case.additive
    if kernel == "triton":
        return (case.additive or case.spans) and find_spec("triton") is not None
    return kernel in ("reference", "blocked") or (
        case.dots and not (kernel == "sdpa" and case.copies)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_a_kernel_agrees_with_the_exact_reference(kernel: str, case: Case) -> None:
    built = case.build()
    arguments = built.arguments(case.dtype)
    if not serves(kernel, case):
        with pytest.raises(KernelRefusedError, match=f"kernel '{kernel}' cannot serve"):
            answer(kernel, arguments)
        return
    exact = answer("reference", built.arguments(torch.float64))
    actual = answer(kernel, arguments)
    assert actual["reading"].dtype == case.dtype
    for name in exact:
        compare(name, actual[name], exact[name], TOLERANCE[case.dtype] * case.slack)


def test_the_table_covers_every_dtype_and_a_large_score() -> None:
    assert {case.dtype for case in CASES} == set(TOLERANCE)
    built = next(case for case in CASES if case.name == "large scores").build()
    scores = regard.scores.ScaledDot()(built.tensors["query"], built.tensors["key"])
    assert scores.abs().max() > 1e4


def test_a_wrong_kernel_would_be_caught() -> None:
    built = CASES[0].build()
    wrong = built.arguments(torch.float32)
    wrong["mask"] = torch.tensor([True] * 6 + [False])
    exact, actual = answer("reference", built.arguments(torch.float64)), answer("matmul", wrong)
    for name in exact:
        with pytest.raises(AssertionError):
            compare(name, actual[name], exact[name], TOLERANCE[torch.float32])
