"""The nearest entries within spans: the compiled loop and the plain one are the brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.translation.datastore.table import Table


def table() -> Table:
    dice = np.random.default_rng(1)
    codes = dice.integers(-127, 128, (60, 5)).astype(np.int8)
    starts = np.array([0, 10, 10, 40, 60])
    return Table(codes, torch.arange(60), torch.arange(60), starts)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("count", [1, 7, 45])
def test_the_nearest_within_spans(compiled, count):
    entries = table()
    queries = torch.randn(15, 5, generator=torch.Generator().manual_seed(2)) * 60
    spans = torch.tensor([[2, 0], [3, -1], [-1, -1], [1, -1], [0, 3]]).repeat(3, 1)
    distances, places = entries.nearest(queries, spans, count, compiled=compiled)
    assert distances.shape == places.shape == (15, count)
    codes = torch.from_numpy(entries.codes).double()
    for row, numbers in enumerate(spans.tolist()):
        allowed = [
            place
            for n in numbers
            if n >= 0
            for place in range(entries.starts[n], entries.starts[n + 1])
        ]
        exact = (queries[row].double() - codes[allowed]).square().sum(1)
        best = exact.sort().values[:count]
        found = len(best)
        torch.testing.assert_close(distances[row, :found].double(), best, rtol=1e-5, atol=1e-3)
        assert set(places[row, :found].tolist()) <= set(allowed)
        assert distances[row, found:].isinf().all()
        assert (places[row, found:] == -1).all()
