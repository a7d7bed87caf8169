"""Plain calls under masks whose queries read runs of keys: several calls of torch's fused attention."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from tests.agreement.comparing import TOLERANCE, compare
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.attention import masks
from regard.attention.kernels import plain
from regard.attention.masks.tiles import independent_tiles
from regard.attention.shapes import Frame

CAUSAL = masks.causal(align="start")
LENGTHS = [40, 17, 71]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))
# Masks, and the calls that read them.
APART: dict[str, tuple[masks.Mask, int]] = {
    "packed": (masks.packed(LENGTHS), 3),
    "other keys": (masks.packed(LENGTHS, [71, 40, 17]), 3),
    "documents": (masks.documents(IDS), 3),
    "documents of all entries": (masks.documents(IDS.expand(2, -1)), 3),
    "documents out of order": (masks.documents(IDS, IDS.flip(0)), 3),
    "causal documents": (CAUSAL & masks.documents(IDS), 3),
    "causal & padding": (CAUSAL & masks.padding([50, 50]), 1),
}
TOGETHER: dict[str, masks.Mask] = {
    "sentence without keys": masks.packed(LENGTHS, [64, 0, 64]),
    "window": masks.band(16, 0),
    "joined tiles": CAUSAL & masks.packed([64, 64], [0, 128]),
    "prefix": CAUSAL | masks.padding([30, 30]),
    "several lengths": CAUSAL & masks.padding([50, 60]),
    "documents of each entry": masks.documents(torch.stack([IDS, IDS.flip(0)])),
    "entries of the mask alone": masks.documents(IDS.expand(6, 1, -1)),
}


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Mock:
    spy = Mock(wraps=F.scaled_dot_product_attention)
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    monkeypatch.setattr(plain, "SAVED", 0)
    return spy


def draw(*batch: int, widths: tuple[int, int] = (8, 8)) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*batch, 128, width) for width in (widths[0], *widths)]


def exact(sides: list[Tensor], mask: masks.Mask) -> Tensor:
    with regard.kernel("reference"):
        return regard.attend(*(side.double() for side in sides), mask=mask)


@pytest.mark.parametrize("name", list(APART))
@pytest.mark.parametrize("heads", [(), (3,)])
def test_runs_of_keys_are_read_by_calls_of_their_own(
    name: str, heads: tuple[int, ...], fused: Mock
) -> None:
    sides, (mask, calls) = draw(2, *heads), APART[name]
    reading = regard.attend(*sides, mask=mask)
    assert fused.call_count == calls
    compare("reading", reading, exact(sides, mask), TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", list(TOGETHER))
def test_other_masks_are_read_as_before(name: str, fused: Mock) -> None:
    sides, mask = draw(2, 3) if "alone" not in name else draw(1, 3), TOGETHER[name]
    reading = regard.attend(*sides, mask=mask)
    assert fused.call_count == 1
    compare("reading", reading, exact(sides, mask), TOLERANCE[torch.float32])


def test_queries_with_nothing_to_read_are_in_no_tile() -> None:
    frame = Frame((2,), 128, 128, torch.device("cpu"))
    assert independent_tiles(TOGETHER["sentence without keys"], frame) is None


def test_values_of_another_width_are_read_in_one_call(fused: Mock) -> None:
    sides, mask = draw(2, 3, widths=(8, 4)), masks.packed(LENGTHS)
    compare("reading", regard.attend(*sides, mask=mask), exact(sides, mask), 3e-6)
    assert fused.call_count == 1
    regard.attend(*draw(2, 3), mask=mask)  # the mask keeps an answer for each
    assert fused.call_count == 1 + len(LENGTHS)


@pytest.mark.parametrize(("size", "calls"), [(2, 1), (3, 8)])
def test_a_call_saves_its_time(
    size: int, calls: int, fused: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight documents of 16 positions leave out 14,336 of 16,384 pairs of each batch entry."""
    monkeypatch.setattr(plain, "SAVED", 5000)
    regard.attend(*draw(size), mask=masks.packed([16] * 8))
    assert fused.call_count == calls


def test_a_hidden_key_that_is_nan_stays_hidden(fused: Mock) -> None:
    sides, mask = draw(2), CAUSAL & masks.packed(LENGTHS)
    clean = regard.attend(*sides, mask=mask)
    sides[1][:, 127], sides[2][:, 127] = torch.nan, torch.inf
    spoilt = regard.attend(*sides, mask=mask)
    compare("reading", spoilt[:, :127], clean[:, :127], 3e-6)
    assert spoilt[:, 127].isnan().all()


def test_changed_documents_are_divided_anew(fused: Mock) -> None:
    sides, ids = draw(2), IDS.clone()
    mask = masks.documents(ids)
    before = regard.attend(*sides, mask=mask)
    ids[40:] = 1
    reading = regard.attend(*sides, mask=mask)
    assert fused.call_count == 5
    assert not torch.allclose(reading, before)
    compare("reading", reading, exact(sides, mask), 3e-6)
