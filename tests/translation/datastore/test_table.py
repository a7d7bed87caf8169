"""The nearest entries within spans: the compiled loop and the plain one are the brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.translation.datastore.space import COMPONENTS, FINE, Space
from regard.translation.datastore.table import Reading, Spans, Table


def table(entries: int = 60) -> Table:
    dice = np.random.default_rng(1)
    codes = dice.integers(-127, 128, (entries, COMPONENTS)).astype(np.int8)
    starts = np.array([0, 10, 10, 40, entries])
    return Table(codes, torch.arange(entries) % 7, torch.arange(entries), starts)


def queries(count: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(2)
    return Space.queries(torch.randn(count, COMPONENTS, generator=dice) * 80)


def reading(*numbers: list[int]) -> Reading:
    """Spans of two tables: as they are, and gathered."""
    pairs = torch.tensor(numbers)
    lists = pairs.clamp(min=0)
    dice = torch.Generator().manual_seed(3)
    factors = torch.rand(pairs.shape, generator=dice) + 0.5
    return Reading(Spans.plain(table(70), lists), Spans(table(), pairs, factors).gathered())


def distance_at(read: Reading, point: torch.Tensor, place: int) -> torch.Tensor:
    """The squared distance to the entry at a place, in float64."""
    entries, factor = read.lists.table, torch.tensor(1.0)
    if place >= len(entries):
        place, entries = place - len(entries), read.pairs.table
        factor = read.pairs.factors.flatten()[np.searchsorted(entries.starts, place, "right") - 1]
    codes = torch.from_numpy(entries.codes[place]).double()
    return factor.double() * (point.double() / FINE - codes).square().sum()


NUMBERS = [[2, 0], [3, -1], [-1, -1], [1, -1], [0, 3]] * 3


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_the_nearest_within_spans(compiled, count):
    points, read = queries(15), reading(*NUMBERS)
    distances, places = read.nearest(points, count, compiled=compiled)
    assert distances.shape == places.shape == (15, count)
    sentences, tokens = read.sentences(places), read.tokens(places)
    for row, numbers in enumerate(NUMBERS):
        allowed = [
            (place, factor, codes)
            for entries, spans, factors in (
                (table(70), [max(n, 0) for n in numbers], torch.ones(2)),
                (table(), numbers, read.pairs.factors[row]),
            )
            for n, factor in zip(spans, factors.double(), strict=True)
            if n >= 0
            for place in range(entries.starts[n], entries.starts[n + 1])
            for codes in [torch.from_numpy(entries.codes[place]).double()]
        ]
        exact = torch.stack(
            [
                factor * (points[row].double() / FINE - codes).square().sum()
                for _, factor, codes in allowed
            ]
        )
        best = exact.sort().values[:count]
        size = len(best)
        torch.testing.assert_close(distances[row, :size].double(), best, rtol=1e-5, atol=1e-3)
        at_places = [distance_at(read, points[row], place) for place in places[row, :size].tolist()]
        torch.testing.assert_close(torch.stack(at_places), best, rtol=1e-5, atol=1e-3)
        if size < count:
            assert sorted(sentences[row, :size].tolist()) == sorted(place for place, *_ in allowed)
        assert torch.equal(tokens[row, :size], sentences[row, :size] % 7)
        assert distances[row, size:].isinf().all()
        for missing in (places, tokens, sentences):
            assert (missing[row, size:] == -1).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_nothing_is_read(compiled):
    read = Reading(Spans.none(2), Spans.none(2))
    distances, places = read.nearest(queries(2), 3, compiled=compiled)
    assert distances.isinf().all()
    assert (places == -1).all()


@pytest.mark.parametrize("lists", [reading(*NUMBERS).lists, Spans.none(15)], ids=["lists", "none"])
def test_the_mixture_is_the_equation(lists):
    """log((1 - w sum a) p + w sum a [y = y_i]), in float64."""
    points, read = queries(15), Reading(lists, reading(*NUMBERS).pairs)
    logits = torch.randn(15, 9, generator=torch.Generator().manual_seed(4)) * 3
    temperature, reach, weight = 9e3, 2e4, 0.7
    distances, places = read.nearest(points, 6, compiled=False)
    together = torch.cat([distances, torch.full((15, 1), reach)], 1).double()
    shares = weight * (-together / temperature).softmax(1)[:, :-1]
    expected = logits.double().softmax(1) * (1 - shares.sum(1, keepdim=True))
    expected.scatter_add_(1, read.tokens(places).clamp(min=0), shares)
    mixed = logits.clone()
    read.mix(mixed, points, 6, (temperature, reach, weight))
    torch.testing.assert_close(mixed.double().exp(), expected, rtol=1e-6, atol=1e-6)
    nothing = places[:, 0] < 0
    torch.testing.assert_close(mixed[nothing], logits[nothing].log_softmax(1))


def test_gathered_spans_have_the_same_entries():
    numbers, factors = torch.tensor([[3, 0], [-1, 1], [0, 2]]), torch.ones(3, 2)
    gathered = Spans(table(), numbers, factors).gathered()
    assert gathered.numbers.tolist() == [[0, 1], [2, 3], [4, 5]]
    expected = [*range(40, 60), *range(10), *range(10), *range(10, 40)]
    assert gathered.table.sentences.tolist() == expected
    assert gathered.table.starts.tolist() == [0, 20, 30, 30, 30, 40, 70]
