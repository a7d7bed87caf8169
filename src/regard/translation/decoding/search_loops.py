"""The best words of a step and one step of a beam, each as one compiled call.

A search of one sentence is many small steps, and torch's operations on five beginnings cost what they
cost on five thousand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.translation.text.tokenizer import BOS, EOS, PAD

STRIP = 64
# Rules for the words that may follow a beginning.
ANY, NO_END, ONLY_END = range(3)


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
def _clear(values: Any, places: Any, place: Any) -> None:
    for k in range(values.size):
        values[k], places[k] = -np.inf, place


@inner
def _insert(values: Any, places: Any, x: Any, place: Any) -> None:
    """Put a number that is above the last one where it belongs, behind its equals; the last one leaves."""
    k = values.size - 1
    while k > 0 and x > values[k - 1]:
        values[k], places[k] = values[k - 1], places[k - 1]
        k -= 1
    values[k], places[k] = x, place


@inner
def _allowed(word: Any, rule: Any) -> Any:
    if rule == ONLY_END:
        return word == EOS
    return word != PAD and word != BOS and not (rule == NO_END and word == EOS)


@inner
def _insert_allowed(row: Any, first: Any, last: Any, rule: Any, values: Any, words: Any) -> None:
    for i in range(first, last):
        if row[i] > values[-1] and _allowed(i, rule):
            _insert(values, words, row[i], i)


@inner
def _least(tops: Any, strips: Any, values: Any, places: Any) -> Any:
    """The n-th largest of the strips' largest, n numbers being wanted.

    The first strip does not count: its largest may be a word that is not allowed.
    """
    _clear(values, places, 0)
    for s in range(1, strips):
        if tops[s] > values[-1]:
            _insert(values, places, tops[s], s)
    return values[-1]


@compiled
def best_few(rules: Any, logits: Any, allowed: Any, tops: Any, values: Any, words: Any) -> bool:
    """The log-probabilities of each row's best words that may follow, best first; of equals the first.

        log p_i = x_i - m - log sum_j e^(x_j - m),  m = max_j x_j

    Only the few that are wanted become log-probabilities. As many strips as words are wanted have each a
    word as large as the strip's largest, so that strips below all of these are passed over.

    Args:
        rules: for each row which words may not follow.
        logits: of every word.
        allowed: the same with -inf for what else may not follow; the same array where only rules count.
        tops: for the largest of each strip.
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
        least = _least(tops, strips, values[r], words[r]) if plain else np.float32(-np.inf)
        _clear(values[r], words[r], EOS)
        for s in range(strips):
            if tops[s] >= least and tops[s] > values[r, -1]:
                first = s * STRIP
                _insert_allowed(allowed[r], first, first + STRIP, rules[r], values[r], words[r])
        _insert_allowed(allowed[r], strips * STRIP, vocabulary, rules[r], values[r], words[r])
        shift = most + np.float32(math.log(total))
        for k in range(values.shape[1]):
            values[r, k] -= shift
    return True


@compiled
def grow(
    before: Any,
    written: Any,
    history: Any,
    best: Any,
    found: Any,
    size: Any,
    totals: Any,
    origins: Any,
    ended: Any,
    ended_log_p: Any,
    next_totals: Any,
    next_words: Any,
    rows: Any,
    next_written: Any,
    next_history: Any,
) -> int:
    """What `beam.grow` computes, sentence by sentence.

    Args:
        before, written, history: of each beginning its total, its tokens and their log-probabilities.
        best, found: of each row the log-probabilities of its best words, and the words.
        size: of the beam.
        totals, origins: of the best continuations of one sentence.
        ended, ended_log_p: for the sentence and the beginning of each hypothesis that ends, and for the
            log-probability of its end.
        next_totals, next_words, rows, next_written, next_history: for the next beginnings, and the rows they grew from.

    Returns:
        How many hypotheses have ended.
    """
    beginnings, few, endings, steps = before.shape[1], best.shape[1], 0, written.shape[2]
    for b in range(len(before)):
        first = b * beginnings
        _clear(totals, origins, 0)
        for i in range(beginnings * few):
            total = before[b, i // few] + best[first + i // few, i % few]
            if total > totals[-1]:
                _insert(totals, origins, total, i)
        kept = 0
        # Those that go on come first, then, where they are too few, places for nothing.
        for ends in range(2):
            for c in range(totals.size):
                parent, column = origins[c] // few, origins[c] % few
                word, log_p = found[first + parent, column], best[first + parent, column]
                if (word == EOS) != (ends == 1):
                    continue
                if ends == 1 and c < size and totals[c] > -np.inf:
                    ended[endings, 0], ended[endings, 1] = b, parent
                    ended_log_p[endings] = log_p
                    endings += 1
                if kept < next_words.shape[1]:
                    rows[b, kept], next_words[b, kept] = first + parent, word
                    next_totals[b, kept] = -np.inf if ends == 1 else totals[c]
                    for t in range(steps):
                        next_written[b, kept, t] = written[b, parent, t]
                        next_history[b, kept, t] = history[b, parent, t]
                    next_written[b, kept, steps] = word
                    next_history[b, kept, steps] = log_p
                    kept += 1
    return endings
