"""The beginnings that a beam search keeps, and those that end."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.translation.decoding.limits import Limits, best_words
from regard.translation.models.protocol import Logits
from regard.translation.text.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Live:
    """The beginnings kept for each sentence, the best first; a place that is empty has total -inf.

    Attributes:
        sentences: the place of each sentence in the batch that was given.
        words: what each beginning ends with and the model reads next.
        totals: log-probability of each beginning.
        tokens: its tokens.
        history: their log-probabilities.
    """

    sentences: Int[Tensor, " batch"]
    words: Int[Tensor, "batch beginnings"]
    totals: Float[Tensor, "batch beginnings"]
    tokens: Int[Tensor, "batch beginnings tokens"]
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

    @cached_property
    def filled(self) -> Bool[Tensor, "batch beginnings"]:
        """The places that are not empty."""
        return self.totals > -math.inf

    def rows(self) -> Int[Tensor, " places"]:
        """For each place, of all sentences one after the other, its row among those that are not empty."""
        return self.filled.flatten().cumsum(0) - 1

    def select(self, rows: Int[Tensor, " kept"]) -> Live:
        return Live(*(getattr(self, field.name)[rows] for field in fields(self)))

    def best_words(
        self, logits: Logits, limits: Limits, count: int, *, compiled: bool
    ) -> tuple[Float[Tensor, "places few"], Int[Tensor, "places few"]]:
        """The best words after each beginning (see `limits.best_words`); empty places have only -inf.

        `logits` has a row for each beginning, and none for empty places.
        """
        filled, beginnings = self.filled.flatten(), self.tokens.shape[1]
        if len(logits) == len(filled):
            return best_words(logits, limits, self.tokens, count, compiled=compiled)
        places = filled.nonzero().flatten()
        tokens = self.tokens.flatten(0, 1)[places].unsqueeze(1)
        own_limits = limits.select(places // beginnings)
        log_p, words = best_words(logits, own_limits, tokens, count, compiled=compiled)
        shape = len(filled), log_p.shape[1]
        every, ends = log_p.new_full(shape, -math.inf), words.new_full(shape, EOS)
        return every.index_copy_(0, places, log_p), ends.index_copy_(0, places, words)


class Ended(NamedTuple):
    """The hypotheses that end among the best `size`: had they gone on, they would be kept.

    Attributes:
        sentences, beginnings: which of the live beginnings each one ends.
        log_p: the log-probability of its end.
    """

    sentences: Int[Tensor, " ended"]
    beginnings: Int[Tensor, " ended"]
    log_p: Float[Tensor, " ended"]
