"""The nearest codes within spans of a table, and the mixture with what followed them, each as one compiled call."""

import math
from typing import Any

import numpy as np

from regard.loops.code_products import weighted_difference
from regard.loops.compiling import compiled, inner, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import exponential_sum, insert, peak_of
from regard.translation.datastore.space import COMPONENTS, FINE

_BLOCK = 64  # numbers that are passed over together where none is among the best
_NOTHING = np.float32(17)  # temperatures: e^-17 is lost when a float32 is added to 1
_STEP = np.float32(FINE // 2)
_difference = weighted_difference(COMPONENTS, FINE // 2)


@inner
def _best(row: Any, best: Any, places: Any) -> None:
    """Put the numbers of a row that are above the last of the best among these, of equals the first first."""
    for block in range(0, row.size, _BLOCK):
        numbers = row[block : block + _BLOCK]
        if peak_of(numbers) > best[-1]:
            for i in range(numbers.size):
                if numbers[i] > best[-1]:
                    insert(best, places, numbers[i], block + i)


@compiled
def greatest(rows: Any, best: Any, places: Any) -> None:
    """The greatest numbers of each row and where they stand, the greatest first; 0 where they are not numbers."""
    best[:] = -np.inf
    places[:] = 0
    for row in range(len(rows)):
        _best(rows[row], best[row], places[row])


@inner
def _search(readings: Any, row: Any, query: Any, farthest: Any, scores: Any, places: Any) -> None:
    """The scores -d of the entries of a query that are nearest, and nearer than `farthest`; of the others -farthest.

        d_i = f |q - c_i|^2 = f (|q|^2 + sum_j c_ij (c_ij - 2 q_j))

    over the codes c of each span, whose factor is f, in whole numbers: s d for s = 64, by the query 2 s q. The places
    of one table come after all those of the table before it.
    """
    scores[:] = -farthest
    places[:] = -1
    square = np.int64(0)
    for j in range(query.size):
        square += np.int64(query[j]) * np.int64(query[j])
    square //= 2 * FINE
    offset = 0
    for starts, codes, spans, factors in readings:
        for k in range(spans.shape[1]):
            span, factor = spans[row, k], -factors[row, k] / _STEP
            for place in range(np.uint64(starts[span]), np.uint64(starts[span + 1])):
                score = factor * np.float32(square + _difference(codes, place, query))
                if score > scores[-1]:
                    insert(scores, places, score, offset + np.int64(place))
        offset += len(codes)


@compiled
def nearest(readings: Any, queries: Any, scores: Any, places: Any) -> None:
    """The scores -d and places of the nearest entries of each query, the nearest first.

    Args:
        readings: of two tables, for each: where each span begins and where the last one ends, the codes of the
            entries, and for each query the spans that it reads and the factors of the squared distances to them.
        queries: in fine steps (see `Space.queries`).
        scores, places: the answer; -inf and -1 where there are fewer entries.
    """
    for row in range(len(queries)):
        _search(readings, row, queries[row], np.float32(np.inf), scores[row], places[row])


@inner
def _subtract(number: Any, row: Any) -> None:
    lanes()
    for i in range(np.uint64(row.size)):
        row[i] -= number


@compiled
def mix(
    readings: Any,
    tokens: Any,
    settings: Any,
    queries: Any,
    scores: Any,
    places: Any,
    logits: Any,
) -> None:
    """Logits become log-probabilities of the mixture (1 - w sum_i a_i) p + w sum_i a_i [y = y_i], in place.

        a_i = e^(-d_i / T) / (e^(-r / T) + sum_j e^(-d_j / T)),  i and j over the nearest entries

    Args:
        readings, queries: as of `nearest`.
        tokens: y, what followed each entry of the two tables.
        settings: T, r and w; T and r in the unit of distances.
        scores, places: room for the nearest entries.
        logits: of p.
    """
    temperature, reach, weight = settings
    of_lists, of_pairs = tokens
    for row in range(len(logits)):
        shares, near, values = scores[row], places[row], logits[row]
        _search(readings, row, queries[row], reach + _NOTHING * temperature, shares, near)
        # Each -d_i becomes e^((m - d_i) / T), m = min(d_1, r), and each place its token.
        highest = max(shares[0], -reach)
        of_model = exponential((-reach - highest) / temperature)
        count, total = 0, of_model
        while count < near.size and near[count] >= 0:
            shares[count] = exponential((shares[count] - highest) / temperature)
            total += shares[count]
            place = near[count]
            in_lists = place < of_lists.size
            near[count] = of_lists[place] if in_lists else of_pairs[place - of_lists.size]
            count += 1
        # log((1 - w sum a) e^x / Z), Z = e^m sum e^(x - m); then the tokens are added.
        peak = peak_of(values)
        of_words = exponential_sum(values, peak) / (1 - weight * (total - of_model) / total)
        _subtract(peak + np.float32(math.log(of_words)), values)
        for i in range(count):
            mixed = exponential(values[near[i]]) + weight * shares[i] / total
            values[near[i]] = np.float32(math.log(mixed))


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
            for entry in range(np.uint64(starts[word]), np.uint64(starts[word + 1])):
                sums[np.uint64(texts[entry])] += scores[entry]
        begin = ends[row]
        best[row] = 0
        numbers[row] = -1
        highest = best[row]
        _best(sums, highest, numbers[row])
        for k in range(highest.size):
            highest[k] = highest[k] / total if total > 0 else np.float32(0)
