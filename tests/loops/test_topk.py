"""The highest of a row, compiled: as a stable sort has them."""

from __future__ import annotations

import pytest
import torch

from regard.loops.topk import RUN, highest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, RUN - 1, RUN, RUN + 1, 5 * RUN, 7 * RUN + 13])
@pytest.mark.parametrize("levels", [2, 9, 4000])
def test_it_is_a_stable_sort(length: int, levels: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(length + levels)
    scores = torch.randint(-levels, levels, (3, 5, length), generator=generator).to(dtype)
    scores[scores == -levels] = -torch.inf
    scores[0, 0] = -torch.inf
    scores[0, 1, ::3] = -0.0
    for count in (1, 2, 8, 40):
        values, found = highest(scores, count)
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        kept = min(count, length)
        assert torch.equal(values[..., :kept], ordered[..., :kept])
        real = ordered[..., :kept] > -torch.inf
        assert torch.equal(found[..., :kept][real], order[..., :kept][real])
        assert bool((values[..., kept:] == -torch.inf).all())
        assert not found[values == -torch.inf].any()


def test_many_rows_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    scores = torch.randn(50, 300)
    values, found = highest(scores, 5)
    assert torch.equal(values, scores.topk(5).values)
    assert torch.equal(scores.gather(-1, found), values)


def test_what_is_no_number_ranks_nowhere() -> None:
    scores = torch.randn(2, 3 * RUN)
    scores[0, 70] = torch.nan
    values, found = highest(scores, 4)
    assert torch.equal(values[1], scores[1].topk(4).values)
    assert not values.isnan().any()
    assert 70 not in found[0].tolist()


def test_a_number_that_is_none_hides_none_of_its_neighbours():
    scores = torch.arange(192.0)[None].clone()
    scores[0, 190] = torch.nan
    values, found = highest(scores, 3)
    assert values.tolist() == [[191.0, 189.0, 188.0]]
    assert found.tolist() == [[191, 189, 188]]
