"""Strips of keys that booleans forbid to all queries of a tile are not computed, forwards or backwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.kernels.additive.cpu.features import STRIP
from regard.attention.kernels.additive.cpu.operator import additive
from regard.masks import band, causal, padding
from regard.scores import Additive, SoftCap

QUERIES, KEYS, WIDTH, CAP = 40, 700, 4, 2.0
POSITIONS = torch.arange(KEYS)
MASKS = {
    "band | prefix": band(0, 90) | padding([40]),
    "far apart": band(0, 0) | band(-600, 640),
    "not a band": ~band(60, 610),
    "booleans": torch.stack([POSITIONS % 300 < 9, POSITIONS < 0]).repeat_interleave(20, 0),
    "one row": POSITIONS // 50 % 3 == 1,
    "of each entry": torch.stack([POSITIONS > 680, POSITIONS // 100 == 2])[:, None],
    "one column": torch.arange(QUERIES)[:, None] % 3 > 0,
}


@pytest.mark.parametrize("cap", [None, CAP])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_readings_and_gradients_are_those_of_the_equations(
    mask: regard.masks.Mask | Tensor, cap: float | None
) -> None:
    torch.manual_seed(2)
    query, key, value = (torch.randn(2, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    additive_score = Additive(WIDTH, WIDTH, 20)
    score = additive_score if cap is None else SoftCap(additive_score, cap)
    leaves = [*(side.requires_grad_() for side in (query, key, value)), *score.parameters()]
    results = []
    for kernel in ("cpu", "reference"):
        with regard.kernel(kernel):
            reading = regard.attend(query, key, value, score=score, mask=mask)
        results.append([reading, *torch.autograd.grad(reading.sin().sum(), leaves)])
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact, atol=1e-5, rtol=1e-5)


def _gradients(mask: Tensor, without: slice) -> tuple[Tensor, Tensor]:
    """The gradients of the queries and of the weight, where some keys hold NaN: 0 times it is NaN."""
    length, hidden = len(mask), 16
    torch.manual_seed(2)
    a, c, w = (torch.randn(*shape) / 4 for shape in ((length, hidden), (length, hidden), (hidden,)))
    c[without] = torch.nan
    a.requires_grad_(), w.requires_grad_()
    reading = additive(a, c, w, torch.randn(length, 4), *[None] * 5, mask, CAP, 1.0)[0]
    of_a, of_w = torch.autograd.grad(reading.sum(), (a, w))
    return of_a, of_w


def test_a_union_is_computed_where_one_side_reads() -> None:
    length = 640
    mask = (band(16, 0) | padding([4])).dense((1,), length, length)[0]
    computed = 0
    for start in range(0, length, STRIP):
        of_a, _ = _gradients(mask, slice(start, start + STRIP))
        computed += STRIP * int(of_a.isnan().any(-1).sum())
    hull = length * length // 2
    assert int(mask.sum()) <= computed < 0.4 * hull


def test_a_strip_that_nobody_reads_is_not_computed() -> None:
    mask = causal(align="start").dense((), 160, 160)
    mask[:, STRIP : 2 * STRIP] = False
    for gradient in _gradients(mask, slice(STRIP, 2 * STRIP)):
        assert gradient.isfinite().all()
    assert _gradients(mask, slice(0, STRIP))[1].isnan().all()
