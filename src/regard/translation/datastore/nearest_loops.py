"""The nearest codes within spans of a table, and the mixture with what followed them, each as one compiled call."""

import math
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import exponential_sum, insert, peak_of
from regard.translation.datastore.space import COMPONENTS

_BLOCK = 64  # texts that are passed over together where none has a score among the best


@inner_sum
def _distance(query: Any, code: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(COMPONENTS)):
        difference = query[i] - np.float32(code[i])
        total += difference * difference
    return total


@inner
def _insert(distances: Any, places: Any, distance: Any, place: Any) -> None:
    """Put a distance that is below the last one where it belongs, behind its equals; the last one leaves."""
    rank = distances.size - 1
    while rank > 0 and distance < distances[rank - 1]:
        distances[rank], places[rank] = distances[rank - 1], places[rank - 1]
        rank -= 1
    distances[rank], places[rank] = distance, place


@inner
def _search(readings: Any, row: Any, query: Any, distances: Any, places: Any) -> None:
    """The nearest entries of a query: d_i = f |q - c_i|^2 over the codes c of each span, whose factor is f.

    The places of one table come after all those of the table before it.
    """
    distances[:] = np.inf
    places[:] = -1
    offset = 0
    for starts, codes, spans, factors in readings:
        for k in range(spans.shape[1]):
            span, factor = spans[row, k], factors[row, k]
            for place in range(np.uint64(starts[span]), np.uint64(starts[span + 1])):
                distance = factor * _distance(query, codes[place])
                if distance < distances[-1]:
                    _insert(distances, places, distance, offset + np.int64(place))
        offset += len(codes)


@compiled
def nearest(readings: Any, queries: Any, distances: Any, places: Any) -> None:
    """The distances and places of the nearest entries of each query, the nearest first.

    Args:
        readings: of two tables, for each: where each span begins and where the last one ends, the codes of the
            entries, and for each query the spans that it reads and the factors of the squared distances to them.
        queries: in the unit of codes.
        distances, places: the answer; inf and -1 where there are fewer entries.
    """
    for row in range(len(queries)):
        _search(readings, row, queries[row], distances[row], places[row])


@compiled
def mix(
    readings: Any,
    tokens: Any,
    settings: Any,
    queries: Any,
    distances: Any,
    places: Any,
    logits: Any,
) -> None:
    """Logits whose softmax is (1 - w sum_i a_i) p + w sum_i a_i [y = y_i], in place: those of the tokens y_i change.

        a_i = e^(-d_i / T) / (e^(-r / T) + sum_j e^(-d_j / T)),  i and j over the nearest entries

    Args:
        readings, queries: as of `nearest`.
        tokens: y, what followed each entry of the two tables.
        settings: T, r and w; T and r in the unit of distances.
        distances, places: room for the nearest entries.
        logits: of p.
    """
    temperature, reach, weight = settings
    of_lists, of_pairs = tokens
    for row in range(len(logits)):
        shares, near, values = distances[row], places[row], logits[row]
        _search(readings, row, queries[row], shares, near)
        # Each d_i becomes e^((m - d_i) / T), m = min(d_1, r).
        lowest = min(shares[0], reach)
        of_model = exponential((lowest - reach) / temperature)
        count, total = 0, of_model
        while count < near.size and near[count] >= 0:
            shares[count] = exponential((lowest - shares[count]) / temperature)
            total += shares[count]
            count += 1
        # p = e^x / Z becomes (e^x + Z w a / (1 - w sum a)) / Z': a softmax takes Z' off.
        peak = peak_of(values)
        odds = weight * exponential_sum(values, peak) / (total - weight * (total - of_model))
        for i in range(count):
            place = near[i]
            word = of_lists[place] if place < of_lists.size else of_pairs[place - of_lists.size]
            mixed = exponential(values[word] - peak) + odds * shares[i]
            values[word] = peak + np.float32(math.log(mixed))


@compiled
def most_similar(
    words: Any,
    ends: Any,
    starts: Any,
    texts: Any,
    scores: Any,
    rarity: Any,
    sums: Any,
    best: Any,
    numbers: Any,
) -> None:
    """The numbers of the texts with the greatest sums of scores for each query, of equals the first.

    Args:
        words, ends: of the queries, one after the other, and where each ends.
        starts: where the entries of each word begin, and where the last ones end.
        texts, scores: of the entries.
        rarity: of each word.
        sums: room for a number for each text.
        best, numbers: the answer; 0 and -1 where no more texts have a word. The best are divided by the rarity of all
            words of the query.
    """
    begin = 0
    for row in range(len(ends)):
        sums[:] = 0
        total = np.float32(0)
        for word in words[begin : ends[row]]:
            total += rarity[word]
            for entry in range(starts[word], starts[word + 1]):
                sums[texts[entry]] += scores[entry]
        begin = ends[row]
        best[row] = 0
        numbers[row] = -1
        highest = best[row]
        for block in range(0, sums.size, _BLOCK):
            scored = sums[block : block + _BLOCK]
            if peak_of(scored) > highest[-1]:
                for i in range(scored.size):
                    if scored[i] > highest[-1]:
                        insert(highest, numbers[row], scored[i], block + i)
        for k in range(highest.size):
            highest[k] = highest[k] / total if total > 0 else np.float32(0)
