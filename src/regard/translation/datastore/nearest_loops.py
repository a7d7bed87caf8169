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


@compiled
def nearest(queries: Any, spans: Any, starts: Any, codes: Any, distances: Any, places: Any) -> None:
    """The squared distances and places of the nearest codes of each query, the nearest first.

    Args:
        queries: in the unit of codes.
        spans: the spans that each query reads; -1 for none.
        starts: where each span begins in the flat codes, and where the last one ends.
        codes: one after the other.
        distances, places: the answer; inf and -1 where there are fewer codes.
    """
    width = queries.shape[1]
    for row in range(len(queries)):
        query, best = queries[row], distances[row]
        best[:] = np.inf
        places[row] = -1
        for span in spans[row]:
            if span >= 0:
                for place in range(starts[span], starts[span + 1]):
                    distance = _distance(query, codes[place * width : place * width + width])
                    if distance < best[-1]:
                        _insert(best, places[row], distance, place)


@compiled
def most_similar(
    words: Any, ends: Any, starts: Any, texts: Any, scores: Any, sums: Any, best: Any, numbers: Any
) -> None:
    """The numbers of the texts with the greatest sums of scores for each query, of equals the first.

    Args:
        words, ends: of the queries, one after the other, and where each ends.
        starts: where the entries of each word begin, and where the last ones end.
        texts, scores: of the entries; the scores are negative, so that the best are the lowest.
        sums: room for a number for each text.
        best, numbers: the answer; 0 and -1 where no more texts have a word.
    """
    begin = 0
    for row in range(len(ends)):
        sums[:] = 0
        for word in words[begin : ends[row]]:
            for entry in range(starts[word], starts[word + 1]):
                sums[texts[entry]] += scores[entry]
        begin = ends[row]
        best[row] = 0
        numbers[row] = -1
        lowest = best[row]
        for text in range(sums.size):
            if sums[text] < lowest[-1]:
                _insert(lowest, numbers[row], sums[text], text)


@compiled
def mix(logits: Any, weights: Any, tokens: Any, weight: Any) -> None:
    """Logits whose softmax is (1 - w sum(a)) p + w sum_i a_i [y = y_i], in place: those of the tokens y_i change.

    Args:
        weights: the shares a of the entries of each row.
        tokens: y, what followed each.
        weight: w.
    """
    for row in range(len(logits)):
        shares, words, values = weights[row], tokens[row], logits[row]
        peak = peak_of(values)
        total, share_of_model = exponential_sum(values, peak), np.float32(1)
        for share in shares:
            share_of_model -= weight * share
        for i in range(shares.size):
            share, is_new = np.float32(0), True
            for j in range(shares.size):
                if words[j] == words[i]:
                    share += shares[j]
                    is_new = is_new and j >= i
            if is_new and share > 0:
                mixed = (
                    exponential(values[words[i]] - peak) + total * weight * share / share_of_model
                )
                values[words[i]] = peak + np.float32(math.log(mixed))
