"""One step of beam search as one compiled call: what `growth.grow` and `growth.go_on` say, sentence by sentence.

A search of one sentence is many small steps, and torch's operations on five beginnings cost what they
cost on five thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner
from regard.translation.text.tokenizer import EOS


@inner
def _best(before: Any, best: Any, first: Any, totals: Any, origins: Any) -> None:
    """The best continuations of a sentence's beginnings, sorted; equals stay in order."""
    few, last = best.shape[1], totals.size - 1
    found = 0
    for i in range(before.size * few):
        total = before[i // few] + best[first + i // few, i % few]
        if found <= last:
            place = found
            found += 1
        elif total > totals[last]:
            place = last
        else:
            continue
        while place > 0 and total > totals[place - 1]:
            totals[place], origins[place] = totals[place - 1], origins[place - 1]
            place -= 1
        totals[place], origins[place] = total, i


@compiled
def grow_all(
    before: Any,
    best: Any,
    found: Any,
    written: Any,
    history: Any,
    size: Any,
    totals: Any,
    parents: Any,
    words: Any,
    log_p: Any,
    ended: Any,
    next_totals: Any,
    next_words: Any,
    rows: Any,
    next_written: Any,
    next_history: Any,
) -> int:
    """Fill what `Grown` and the next `Live` hold, and the rows that its beginnings grew from.

    Args:
        before: the total of each beginning, sentence by sentence.
        best, found: of each row the log-probabilities of its best words, and the words.
        written, history: of each beginning.
        size: of the beam.
        ended: room for the sentence and candidate of every hypothesis that ends.

    Returns:
        How many hypotheses have ended.
    """
    beginnings, few, endings = before.shape[1], best.shape[1], 0
    for b in range(len(before)):
        first = b * beginnings
        _best(before[b], best, first, totals[b], parents[b])
        for c in range(totals.shape[1]):
            origin = parents[b, c]
            row, column = first + origin // few, origin % few
            parents[b, c] = origin // few
            words[b, c], log_p[b, c] = found[row, column], best[row, column]
            if c < size and words[b, c] == EOS and totals[b, c] > -np.inf:
                ended[endings, 0], ended[endings, 1] = b, c
                endings += 1
        kept = 0
        # Those that go on come first, then, where they are too few, places for nothing.
        for ends in range(2):
            for c in range(totals.shape[1]):
                if kept < next_words.shape[1] and (words[b, c] == EOS) == (ends == 1):
                    parent = parents[b, c]
                    rows[b, kept], next_words[b, kept] = first + parent, words[b, c]
                    next_totals[b, kept] = -np.inf if ends == 1 else totals[b, c]
                    steps = written.shape[2]
                    for t in range(steps):
                        next_written[b, kept, t] = written[b, parent, t]
                        next_history[b, kept, t] = history[b, parent, t]
                    next_written[b, kept, steps] = words[b, c]
                    next_history[b, kept, steps] = log_p[b, c]
                    kept += 1
    return endings
