"""Learning rates: the warm-up, and what each name says after it."""

from __future__ import annotations

import math

import pytest

from regard.translation.training.schedule import factor


@pytest.mark.parametrize("name", ["constant", "inverse_square_root", "cosine", "plateau"])
@pytest.mark.parametrize("warmup", [0, 1, 10, 200])
def test_rates_rise_in_a_line_to_1_and_stay_in_range(name, warmup):
    rates = [factor(name, step, warmup=warmup, total=100) for step in range(1, 131)]
    assert rates[:warmup] == [step / warmup for step in range(1, min(warmup, 130) + 1)]
    assert all(0 <= rate <= 1 for rate in rates)
    decayed = rates[warmup:]
    assert decayed == sorted(decayed, reverse=True)
    if decayed:
        assert decayed[0] > 0.85 if name != "inverse_square_root" else decayed[0] >= 0.7


def test_inverse_square_root_is_the_papers():
    for step in (10, 40, 1000):
        assert factor("inverse_square_root", step, warmup=10, total=1) == math.sqrt(10 / step)


def test_the_cosine_ends_at_nothing():
    def rate(step: int) -> float:
        return factor("cosine", step, warmup=10, total=110)

    assert rate(60) == pytest.approx(0.5)
    assert rate(110) == pytest.approx(0)
    assert rate(10**6) == pytest.approx(0)


def test_each_plateau_halves():
    assert [factor("plateau", 9, warmup=3, total=10, plateaus=n) for n in range(3)] == [
        1,
        0.5,
        0.25,
    ]
    assert factor("constant", 9, warmup=3, total=10, plateaus=4) == 1
