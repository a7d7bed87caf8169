"""Positions as vectors."""

from __future__ import annotations

import math

import pytest
import torch

from regard.attention.positions import Learned, sinusoidal
from regard.attention.shapes import ShapeError


@pytest.mark.parametrize("width", [1, 5, 8])
def test_sinusoidal_is_the_papers_formula(width):
    table = sinusoidal(9, width, dtype=torch.float64)
    assert table.shape == (9, width)
    for t in range(9):
        for column in range(width):
            angle = t / 10000 ** (2 * (column // 2) / width)
            wave = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert table[t, column].item() == pytest.approx(wave, abs=1e-12)


def test_a_shift_is_a_rotation_and_far_positions_keep_their_precision():
    table = sinusoidal(100_000, 6, dtype=torch.float64)
    likeness = (table[:-7] * table[7:]).sum(-1)
    torch.testing.assert_close(likeness, likeness[:1].expand_as(likeness))
    torch.testing.assert_close(sinusoidal(100_000, 6)[-1].double(), table[-1], atol=1e-6, rtol=0)


def test_learned_positions_are_rows_that_train():
    positions = Learned(10, 4)
    assert torch.equal(positions(3, start=2), positions.weight[2:5])
    positions(3).sum().backward()
    assert positions.weight.grad[:3].eq(1).all()
    assert positions.weight.grad[3:].eq(0).all()
    with pytest.raises(ShapeError, match="positions 8 to 10 are asked for"):
        positions(3, start=8)


@pytest.mark.parametrize(
    "make", [lambda: sinusoidal(-1, 4), lambda: sinusoidal(4, 0), lambda: Learned(0, 4)]
)
def test_impossible_sizes_are_refused(make):
    with pytest.raises(ValueError, match="pass at least"):
        make()
