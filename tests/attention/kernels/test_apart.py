"""Gradients of masks whose queries read runs of keys: one call forwards and one backwards for each run."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from tests.agreement.comparing import TOLERANCE, compare
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.kernels import apart, tiled
from regard.attention.kernels.apart import Calls
from regard.attention.masks.tiles import independent_tiles
from regard.attention.shapes import Frame

CAUSAL = masks.causal(align="start")
LENGTHS = [20, 7, 37]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))
# Masks, how many calls read them, and whether the keys of the calls follow one another without a gap.
MASKS: dict[str, tuple[masks.Mask, int, bool]] = {
    "packed": (masks.packed(LENGTHS), 3, True),
    "causal documents": (CAUSAL & masks.documents(IDS), 3, True),
    "documents out of order": (masks.documents(IDS, IDS.flip(0)), 3, False),
    "keys that no call reads": (CAUSAL & masks.padding([40]), 1, False),
    "keys that two calls read": (masks.documents(IDS % 2, IDS.clamp(max=1)), 3, False),
}


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> tuple[Mock, Mock]:
    monkeypatch.setattr(tiled, "AREA", 1)
    spies = Mock(wraps=apart.fused_forward), Mock(wraps=apart.fused_backward)
    monkeypatch.setattr(apart, "fused_forward", spies[0])
    monkeypatch.setattr(apart, "fused_backward", spies[1])
    return spies


def draw(*batch: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*batch, 64, 8, dtype=dtype, requires_grad=True) for _ in range(3)]


def gradients(sides: list[Tensor], mask: masks.Mask, kernel: str = "sdpa") -> list[Tensor]:
    with regard.kernel(kernel):
        reading = regard.attend(*sides, mask=mask)
    return [reading, *torch.autograd.grad(reading.sin().sum(), sides)]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("batch", [(1,), (1, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_each_run_of_keys_takes_one_call_in_each_pass(
    name: str, batch: tuple[int, ...], dtype: torch.dtype, fused: tuple[Mock, Mock]
) -> None:
    (mask, count, _), sides = MASKS[name], draw(*batch, dtype=dtype)
    results = gradients(sides, mask)
    assert [spy.call_count for spy in fused] == [count, count]
    doubles = [side.detach().double().requires_grad_() for side in sides]
    for result, exact in zip(results, gradients(doubles, mask, "reference"), strict=True):
        assert result.dtype == dtype
        compare(name, result, exact, TOLERANCE[dtype])


@pytest.mark.parametrize("name", MASKS)
def test_keys_are_split_where_they_follow_one_another(name: str) -> None:
    mask, _, divide_keys = MASKS[name]
    division = independent_tiles(mask, Frame((1,), 64, 64, torch.device("cpu")))
    assert division is not None
    assert Calls.of(division, 64).divide_keys == divide_keys
    assert not Calls.of(division, 65).divide_keys


def test_gradients_that_an_infinite_key_spoils_are_computed_again(fused: tuple[Mock, Mock]) -> None:
    sides, mask = draw(), masks.packed(LENGTHS)
    with torch.no_grad():
        sides[0].abs_()
        sides[1][63] = -torch.inf  # scores of -inf, with weights of 0
    assert all(each.isfinite().all() for each in gradients(sides, mask))
    assert fused[1].call_count == 2 * len(LENGTHS)
