"""A translation as ids, with how probable the model holds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One complete translation.

    Attributes:
        tokens: its ids, without the begin and the end of the sentence.
        score: the log-probability over the length penalty; hypotheses are ranked by it.
        log_probability: log p(tokens, end | source), the sum of the entries below.
        token_log_probabilities: one entry a token, and a last one for the end of the sentence.
    """

    tokens: list[int]
    score: float
    log_probability: float
    token_log_probabilities: list[float]

    @classmethod
    def of(
        cls, tokens: Sequence[int], log_probabilities: Sequence[float], length_penalty: float
    ) -> Hypothesis:
        """The hypothesis of these tokens; `log_probabilities` has the end of the sentence too."""
        total = math.fsum(log_probabilities)
        score = total / penalty(len(log_probabilities), length_penalty)
        return cls(list(tokens), score, total, list(log_probabilities))


def penalty(length: int, exponent: float) -> float:
    """The divisor of a translation's log-probability, so that long ones have a chance.

    ((5 + n) / 6)^alpha: Wu et al. 2016 (arXiv 1609.08144), equation 14. n counts the end of the
    sentence, alpha is our `exponent`: 0 ranks by probability.

    >>> penalty(1, 0.6), penalty(7, 1.0)
    (1.0, 2.0)
    """
    return float(((5.0 + length) / 6.0) ** exponent)
