"""The beginnings that a beam search keeps, and those that end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.text.tokenizer import BOS


@dataclass(frozen=True)
class Live:
    """The beginnings kept for each sentence, the best first; a place that is empty has total -inf.

    Attributes:
        sentences: the place of each sentence in the batch that was given.
        words: what each beginning ends with and the model reads next.
        totals: log-probability of each beginning.
        written: its tokens.
        history: their log-probabilities.
    """

    sentences: Int[Tensor, " batch"]
    words: Int[Tensor, "batch beginnings"]
    totals: Float[Tensor, "batch beginnings"]
    written: Int[Tensor, "batch beginnings tokens"]
    history: Float[Tensor, "batch beginnings tokens"]

    @classmethod
    def begin(cls, sentences: int, device: torch.device) -> Self:
        """One empty beginning a sentence: the first step needs no copies of it."""
        return cls(
            torch.arange(sentences, device=device),
            torch.full((sentences, 1), BOS, device=device),
            torch.zeros(sentences, 1, device=device),
            torch.empty(sentences, 1, 0, dtype=torch.int64, device=device),
            torch.empty(sentences, 1, 0, device=device),
        )

    def select(self, kept: Int[Tensor, " kept"]) -> Live:
        return Live(*(each[kept] for each in vars(self).values()))


class Ended(NamedTuple):
    """The hypotheses that end among the best `size`: had they gone on, they would be kept.

    Attributes:
        sentences, beginnings: which of the live beginnings each one ends.
        log_p: the log-probability of its end.
    """

    sentences: Int[Tensor, " ended"]
    beginnings: Int[Tensor, " ended"]
    log_p: Float[Tensor, " ended"]
