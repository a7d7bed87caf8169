"""The quality of a translation as a number: a logistic regression over what the search and the source show.

`doubts.json` in a run folder keeps it, in the table of the doubts. No second model is needed: quality estimation "in a
glass box" (Fomicheva et al. 2020, arXiv 2005.10608), with the agreement of the hypotheses as of minimum-risk decoding.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Self

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from pydantic import BaseModel

# The chrF from which a translation counts as good; the fewest good and bad ones that a regression is learnt from.
GOOD, FEWEST = 25.0, 20
_FOLDS, _ROUNDS, _RIDGE = 10, 20, 3.0
_LETTERS = 3


class Quality(BaseModel, frozen=True, extra="forbid", strict=True):
    """A logistic regression over features (`reading.features`), each of which is standardised.

    Attributes:
        means, scales: of the features in the validation text; a feature that a search does not tell is at its mean.
        weights: of the features.
        bias: the log-odds where all features are at their means.
        limit: translations with a probability at or below it are to be doubted; None where it is not known.
    """

    means: list[float]
    scales: list[float]
    weights: list[float]
    bias: float
    limit: float | None = None

    @classmethod
    def fit(
        cls, rows: Float[np.ndarray, "lines features"], good: Bool[np.ndarray, " lines"]
    ) -> Self:
        """The regression with a ridge, by Newton's method."""
        means = np.nanmean(rows, 0)
        scales = np.nanstd(rows, 0) + 1e-6
        inputs = np.nan_to_num((rows - means) / scales)
        inputs = np.column_stack([inputs, np.ones(len(inputs))])
        ridge = _RIDGE * np.diag([1.0] * len(means) + [0.0])
        weights = np.zeros(inputs.shape[1])
        for _ in range(_ROUNDS):
            probabilities = 1 / (1 + np.exp(-inputs @ weights))
            slopes = probabilities * (1 - probabilities) + 1e-6
            gradient = inputs.T @ (probabilities - good) + ridge @ weights
            weights -= np.linalg.solve(inputs.T @ (inputs * slopes[:, None]) + ridge, gradient)
        numbers = (values.round(6).tolist() for values in (means, scales, weights[:-1]))
        return cls(
            **dict(zip(("means", "scales", "weights"), numbers, strict=True)),
            bias=round(float(weights[-1]), 6),
        )

    def probabilities(self, rows: Float[np.ndarray, "lines features"]) -> NDArray[np.float64]:
        """The probability of each line that its translation is good (chrF of 25 or more against a reference)."""
        inputs = np.nan_to_num((rows - np.array(self.means)) / np.array(self.scales))
        return np.asarray(
            1 / (1 + np.exp(-np.clip(inputs @ np.array(self.weights) + self.bias, -30, 30)))
        )

    def of(self, row: Sequence[float]) -> float:
        """That of one line."""
        return round(float(self.probabilities(np.array([row]))[0]), 4)


def agreement(text: str, hypotheses: Sequence[str]) -> float:
    """The share of sequences of three characters that a text has in common with others, on average; 1 without any.

    >>> agreement("a cat", ["a cat", "a hat"])
    0.5
    """
    trigrams = _trigrams(text)
    return fmean(_dice(trigrams, _trigrams(other)) for other in hypotheses) if hypotheses else 1.0


def held_out(
    rows: Float[np.ndarray, "lines features"], good: Bool[np.ndarray, " lines"]
) -> NDArray[np.float64]:
    """The probability of each line by a regression that has not seen it: in turn, each tenth is left out."""
    answer = np.empty(len(rows))
    folds = np.random.default_rng(1).permutation(len(rows)) % _FOLDS
    for fold in range(_FOLDS):
        out = folds == fold
        answer[out] = Quality.fit(rows[~out], good[~out]).probabilities(rows[out])
    return answer


def _trigrams(text: str) -> Counter[str]:
    text = text.lower()
    return Counter(text[start : start + _LETTERS] for start in range(len(text) - _LETTERS + 1))


def _dice(trigrams: Counter[str], other_trigrams: Counter[str]) -> float:
    size = trigrams.total() + other_trigrams.total()
    return 2 * (trigrams & other_trigrams).total() / size if size else 1.0
