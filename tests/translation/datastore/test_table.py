"""The nearest entries within spans: the compiled loop and the plain one are the brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.translation.datastore.table import Spans, Table


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
    factors = torch.rand(spans.shape, generator=torch.Generator().manual_seed(3)) + 0.5
    read = Spans(spans, factors)
    distances, places = entries.nearest(queries, read, count, compiled=compiled)
    assert distances.shape == places.shape == (15, count)
    codes = torch.from_numpy(entries.codes).double()
    for row, numbers in enumerate(spans.tolist()):
        allowed = {
            place: factor
            for n, factor in zip(numbers, factors[row].double(), strict=True)
            if n >= 0
            for place in range(entries.starts[n], entries.starts[n + 1])
        }
        scale = torch.tensor(list(allowed.values()))
        exact = (queries[row].double() - codes[list(allowed)]).square().sum(1) * scale
        best = exact.sort().values[:count]
        found = len(best)
        torch.testing.assert_close(distances[row, :found].double(), best, rtol=1e-5, atol=1e-3)
        assert set(places[row, :found].tolist()) <= set(allowed)
        assert distances[row, found:].isinf().all()
        assert (places[row, found:] == -1).all()


def test_the_mixture_is_the_equation():
    """Logits of (1 - w sum a) p + w sum a [y = y_i], in float64."""
    entries, generator = table(), torch.Generator().manual_seed(4)
    queries = torch.randn(30, 5, generator=generator) * 60
    numbers = torch.tensor([[2, 0], [3, -1], [-1, -1]]).repeat(10, 1)
    spans = Spans(numbers, torch.rand(numbers.shape, generator=generator) + 0.5)
    entries = replace(entries, tokens=torch.arange(60) % 7)
    logits = torch.randn(30, 9, generator=generator) * 3
    temperature, reach, weight = 9e3, 2e4, 0.7
    distances, places = entries.nearest(queries, spans, 6, compiled=False)
    together = torch.cat([distances, torch.full((30, 1), reach)], 1).double()
    shares = weight * (-together / temperature).softmax(1)[:, :-1]
    expected = logits.double().softmax(1) * (1 - shares.sum(1, keepdim=True))
    expected.scatter_add_(1, entries.tokens[places.clamp(min=0)], shares)
    mixed = logits.clone()
    entries.mix(mixed, queries, spans, 6, (temperature, reach, weight))
    torch.testing.assert_close(mixed.double().softmax(1), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(mixed[2::3], logits[2::3])
