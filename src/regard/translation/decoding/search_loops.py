"""The best words of a step, as one compiled call.

A search of one sentence is many small steps, and torch's operations on five beginnings cost what they
cost on five thousand.
"""

import math
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner
from regard.loops.rows import exponential_sum, insert, peak_of
from regard.translation.text.tokenizer import BOS, EOS, PAD

# Rules for the words that may follow a beginning.
ANY, NO_END, ONLY_END = range(3)


@inner
def _allowed(word: Any, rule: Any) -> Any:
    if rule == ONLY_END:
        return word == EOS
    return word != PAD and word != BOS and not (rule == NO_END and word == EOS)


@inner
def _log_total(row: Any) -> Any:
    """log sum_j e^(x_j) = m + log sum_j e^(x_j - m), m = max_j x_j."""
    peak = peak_of(row)
    return peak + np.float32(math.log(exponential_sum(row, peak)))


@compiled
def best_few(
    normalised: Any, rules: Any, logits: Any, allowed: Any, values: Any, words: Any
) -> bool:
    """The log-probabilities of each row's best words that may follow, best first; of equals the first.

        log p_i = x_i - log sum_j e^(x_j)

    Only the few that are wanted become log-probabilities.

    Args:
        normalised: whether logits are log-probabilities.
        rules: for each row which words may not follow.
        logits: of every word.
        allowed: the same with -inf for what else may not follow.
        values, words: the answer; places for which there is no word have -inf and the end.

    Returns:
        Whether every row is of numbers.
    """
    for r in range(len(logits)):
        row, best = allowed[r], values[r]
        shift = np.float32(0) if normalised else _log_total(logits[r])
        if not shift < np.inf or np.isnan(logits[r, 0]):
            return False
        best[:] = -np.inf
        words[r] = EOS
        for word in range(row.size):
            if row[word] > best[-1] and _allowed(word, rules[r]):
                insert(best, words[r], row[word], word)
        for k in range(best.size):
            best[k] -= shift
    return True
