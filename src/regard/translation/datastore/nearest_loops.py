"""The nearest codes within spans of a table, and the mixture with what followed them, each as one compiled call."""

import math
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.log_sums import exponential_sum, peak_of


@inner_sum
def _distance(query: Any, code: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(query.size)):
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
def _search(entries: Any, query: Any, read: Any, distances: Any, places: Any) -> None:
    """The nearest entries of a query: d_i = f |q - c_i|^2 over the codes c of each span, whose factor is f."""
    (starts, codes), (spans, factors) = entries, read
    width = query.size
    distances[:] = np.inf
    places[:] = -1
    for k in range(spans.size):
        span = spans[k]
        if span >= 0:
            for place in range(starts[span], starts[span + 1]):
                code = codes[place * width : place * width + width]
                distance = factors[k] * _distance(query, code)
                if distance < distances[-1]:
                    _insert(distances, places, distance, place)


@compiled
def nearest(
    starts: Any, codes: Any, queries: Any, spans: Any, factors: Any, distances: Any, places: Any
) -> None:
    """The distances and places of the nearest entries of each query, the nearest first.

    Args:
        starts: where each span begins in the flat codes, and where the last one ends.
        codes: of the entries, one after the other.
        queries: in the unit of codes.
        spans: the spans that each query reads; -1 for none.
        factors: of the squared distances to the codes of each span.
        distances, places: the answer; inf and -1 where there are fewer entries.
    """
    for row in range(len(queries)):
        read = spans[row], factors[row]
        _search((starts, codes), queries[row], read, distances[row], places[row])


@compiled
def mix(
    tokens: Any,
    settings: Any,
    starts: Any,
    codes: Any,
    queries: Any,
    spans: Any,
    factors: Any,
    distances: Any,
    places: Any,
    logits: Any,
) -> None:
    """Logits whose softmax is (1 - w sum_i a_i) p + w sum_i a_i [y = y_i], in place: those of the tokens y_i change.

        a_i = e^(-d_i / T) / (e^(-r / T) + sum_j e^(-d_j / T)),  i and j over the nearest entries

    Args:
        tokens: y, what followed each entry.
        settings: T, r and w; T and r in the unit of distances.
        starts, codes, queries, spans, factors: as of `nearest`.
        distances, places: room for the nearest entries.
        logits: of p.
    """
    temperature, reach, weight = settings
    for row in range(len(logits)):
        shares, near, values = distances[row], places[row], logits[row]
        _search((starts, codes), queries[row], (spans[row], factors[row]), shares, near)
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
            word = tokens[near[i]]
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
        texts, scores: of the entries; the scores are negative, so that the best are the lowest.
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
        lowest = best[row]
        for text in range(sums.size):
            if sums[text] < lowest[-1]:
                _insert(lowest, numbers[row], sums[text], text)
        for k in range(lowest.size):
            lowest[k] = -lowest[k] / total if total > 0 else np.float32(0)
