"""The measure of memory: it sees what is freed again, and not what was there before."""

from __future__ import annotations

import pytest
import torch
from tests.peaks import growth, measured

MEGABYTE = 2**20


def take(megabytes: int) -> None:
    torch.ones(megabytes * MEGABYTE, dtype=torch.uint8)


@measured
def test_the_growth_is_that_of_the_work_alone():
    assert 90 < growth(lambda: take(8), lambda: take(100)) < 130
    assert growth(lambda: take(100), lambda: take(8)) < 28


@measured
def test_a_failure_in_the_child_is_a_failure_here():
    with pytest.raises(AssertionError):
        growth(lambda: take(1), lambda: 1 // 0)
