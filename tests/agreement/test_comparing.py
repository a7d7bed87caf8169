"""The comparing helper itself is fed wrong answers."""

from __future__ import annotations

import pytest
import torch
from tests.agreement.comparing import TOLERANCE, compare

EXACT = torch.tensor([1.0, -2.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_a_right_answer_passes(dtype: torch.dtype) -> None:
    compare("reading", EXACT.to(dtype), EXACT, TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (torch.tensor([1.0, -2.1]), "off by"),
        (torch.tensor([1.0, float("nan")]), "not finite"),
        (torch.tensor([1.0, float("-inf")]), "not finite"),
        (torch.tensor([[1.0, -2.0]]), "shape"),
        (None, "no"),
    ],
)
def test_a_wrong_answer_is_caught(actual: torch.Tensor | None, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        compare("reading", actual, EXACT, 3e-2)


def test_a_gradient_that_should_not_be_is_caught() -> None:
    with pytest.raises(AssertionError, match="gradient"):
        compare("key gradient", torch.ones(2), None, 1.0)
