"""The best few of a row of logits and the total of its exponentials, in two sweeps.

    log p_i = x_i - m - log sum_j e^(x_j - m),  m = max_j x_j

Only the few that are wanted become log-probabilities. As many strips as words are wanted have each a
word as large as the strip's largest, so that strips below all of these are passed over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.translation.decoding.limits import NO_END, ONLY_END
from regard.translation.text.tokenizer import BOS, EOS, PAD

STRIP = 64


@inner
def _raise(tops: Any, row: Any, strips: Any) -> None:
    """The largest of each strip; -inf stays what it is, a NaN may be lost."""
    lanes()
    for s in range(np.uint64(strips)):
        best = row[s * np.uint64(STRIP)]
        for i in range(np.uint64(STRIP)):
            x = row[s * np.uint64(STRIP) + i]
            best = x if x > best else best
        tops[s] = best


@inner_sum
def _total(row: Any, most: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += exponential(row[i] - most)
    return total


@inner
def _allowed(word: Any, rule: Any) -> Any:
    if rule == ONLY_END:
        return word == EOS
    return word != PAD and word != BOS and not (rule == NO_END and word == EOS)


@inner
def _insert(row: Any, first: Any, last: Any, rule: Any, values: Any, words: Any) -> None:
    """Put what is above the worst where it belongs; equals stay in order."""
    few = values.size
    for i in range(first, last):
        x = row[i]
        if x > values[few - 1] and _allowed(i, rule):
            place = few - 1
            while place > 0 and x > values[place - 1]:
                values[place], words[place] = values[place - 1], words[place - 1]
                place -= 1
            values[place], words[place] = x, i


@inner
def _least(tops: Any, strips: Any, best: Any) -> Any:
    """The n-th largest of the strips' largest, n numbers being wanted; `best` is room for them.

    The first strip does not count: its largest may be a word that is not allowed.
    """
    for k in range(best.size):
        best[k] = -np.inf
    last = best.size - 1
    for s in range(1, strips):
        x = tops[s]
        if x > best[last]:
            place = last
            while place > 0 and x > best[place - 1]:
                best[place] = best[place - 1]
                place -= 1
            best[place] = x
    return best[last]


@compiled
def best_few(logits: Any, allowed: Any, rules: Any, tops: Any, values: Any, words: Any) -> bool:
    """The log-probabilities of each row's best words that may follow, best first; of equals the first.

    Args:
        logits: of every word.
        allowed: the same with -inf for what may not follow; the same array where only rules count.
        rules: what else may not follow.
        tops: room for the largest of each strip.
        values, words: the answer; places for which there is no word have -inf and the end.

    Returns:
        Whether every row is of numbers.
    """
    vocabulary = logits.shape[1]
    strips = vocabulary // STRIP
    for r in range(len(logits)):
        row = logits[r]
        _raise(tops, row, strips)
        most = np.float32(-np.inf)
        for s in range(strips):
            most = max(most, tops[s])
        for i in range(strips * STRIP, vocabulary):
            most = max(most, row[i])
        total = _total(row, most)
        if not total > 0 or total == np.inf:
            return False
        # Where some words are ruled out one by one, any strip's largest may be among them.
        plain = allowed is logits and rules[r] != ONLY_END
        least = _least(tops, strips, values[r]) if plain else np.float32(-np.inf)
        for k in range(values.shape[1]):
            values[r, k], words[r, k] = -np.inf, EOS
        for s in range(strips):
            if tops[s] >= least and tops[s] > values[r, -1]:
                _insert(allowed[r], s * STRIP, s * STRIP + STRIP, rules[r], values[r], words[r])
        _insert(allowed[r], strips * STRIP, vocabulary, rules[r], values[r], words[r])
        shift = most + np.float32(math.log(total))
        for k in range(values.shape[1]):
            values[r, k] -= shift
    return True
