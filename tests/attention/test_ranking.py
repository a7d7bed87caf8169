"""The best few against a stable sort of all."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.ranking import top


@given(
    st.integers(0, 10_000),
    st.sampled_from([11, 300, 2055]),
    st.integers(1, 12),
    st.sampled_from([1, 2, 5, 10_000]),
    st.booleans(),
)
def test_top_is_the_start_of_a_stable_sort(
    seed: int, length: int, count: int, levels: int, holes: bool
):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(levels, (6, length), generator=generator).float()
    if holes:
        values[torch.rand(6, length, generator=generator) < 0.3] = float("-inf")
    ranked = values.sort(dim=-1, descending=True, stable=True)
    best, where = top(values, count)
    expected, places = ranked.values[:, :count], ranked.indices[:, :count]
    assert torch.equal(best, expected)
    assert torch.equal(where[best.isfinite()], places[expected.isfinite()])
    assert torch.equal(values.gather(1, where), best)


def test_a_large_row_of_equals():
    best, where = top(torch.zeros(2, 5000), 4)
    assert torch.equal(where, torch.arange(4).expand(2, 4))
    assert torch.equal(best, torch.zeros(2, 4))


def test_rows_of_any_axes_and_a_row_that_is_damaged():
    values = torch.zeros(2, 3, 40)
    values[0, 1, 7] = torch.nan
    where = top(values, 3)[1]
    assert where[1, 2].tolist() == [0, 1, 2]
    assert where[0, 1].tolist() == [7, 0, 1]
    assert top(values, 1)[1].shape == (2, 3, 1)
