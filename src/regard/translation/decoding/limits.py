"""The words that a search may write: never padding, never a second beginning, and an end in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.repetition import completing
from regard.translation.text.tokenizer import BOS, EOS, PAD

_NEVER = float("-inf")
# Rules for the words that may follow a beginning, as `candidate_loops` numbers them.
ANY, NO_END, ONLY_END = range(3)

DAMAGED = (
    "the model's output is not a number: its weights are damaged, or its numbers overflow "
    "in this precision (try float32)"
)


def log_probabilities(logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows vocabulary"]:
    """log p of every next word, in float32 whatever the model computes in; a tensor of its own.

    Raises:
        ModelError: a logit is not a number, or infinite.
    """
    result = logits.log_softmax(-1, dtype=torch.float32)
    # One NaN or +inf makes its whole row NaN: one column shows all of them.
    if bool(result[:, :1].isnan().any()):
        raise ModelError(DAMAGED)
    return result


@dataclass(frozen=True)
class Limits:
    """How long each sentence's translation may and must be, and how it must begin.

    Attributes:
        longest: tokens a translation may have at most, the end of the sentence not counted.
        shortest: tokens it must have at least; where `longest` is less, `longest` counts.
        prefix: how it must begin; None for anyhow.
        no_repeat_ngram: no sequence of so many tokens may occur twice, except in the prefix; 0 allows all.
    """

    longest: Int[Tensor, " batch"]
    shortest: int = 0
    prefix: Prefixes | None = None
    no_repeat_ngram: int = 0

    @classmethod
    def of(
        cls,
        sentences: int,
        max_length: int | Int[Tensor, " batch"],
        *,
        min_length: int = 0,
        prefix: Prefixes | Sequence[Sequence[int]] | None = None,
        no_repeat_ngram: int = 0,
        device: torch.device,
    ) -> Self:
        """The limits of a batch. A prefix longer than `max_length` makes room for itself.

        Raises:
            ConfigurationError: the lengths or the prefixes do not fit the batch, or make no sense.
        """
        longest = torch.as_tensor(max_length, dtype=torch.int64, device=device)
        if longest.dim() > 0 and longest.shape != (sentences,):
            raise ConfigurationError(
                f"max_length has shape {list(longest.shape)}, the batch has {sentences} sentences"
            )
        if (sentences and int(longest.min()) < 0) or min_length < 0:
            raise ConfigurationError("a length limit is negative: use 0 or more")
        if no_repeat_ngram < 0:
            raise ConfigurationError(
                f"no_repeat_ngram {no_repeat_ngram}: use 1 or more, or 0 for no limit"
            )
        longest = longest.expand(sentences)
        if prefix is None:
            return cls(longest, min_length, None, no_repeat_ngram)
        begun = prefix if isinstance(prefix, Prefixes) else Prefixes.of(prefix, device)
        if len(begun.tokens) != sentences:
            raise ConfigurationError(f"{len(begun.tokens)} prefixes for {sentences} sentences")
        return cls(torch.maximum(longest, begun.lengths), min_length, begun, no_repeat_ngram)

    def select(self, sentences: Int[Tensor, " kept"]) -> Limits:
        prefix = None if self.prefix is None else self.prefix.select(sentences)
        return replace(self, longest=self.longest[sentences], prefix=prefix)

    def rules(self, written: int, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The words that may follow `written` tokens in each row, also after a prefix; on a processor."""
        end = NO_END if written < self.shortest else ANY
        each = np.where(self.longest.numpy() <= written, ONLY_END, end)
        return np.repeat(each, rows // len(each))

    @property
    def names_words(self) -> bool:
        """Whether `forbid` forbids anything."""
        return self.prefix is not None or self.no_repeat_ngram > 0

    def restrict(
        self,
        log_p: Float[Tensor, "batch hypotheses vocabulary"],
        written: Int[Tensor, "batch hypotheses tokens"],
    ) -> Float[Tensor, "batch hypotheses vocabulary"]:
        """Set what may not follow these tokens to -inf, in place; the rest keeps its value."""
        count = written.shape[2]
        log_p[..., PAD] = _NEVER
        log_p[..., BOS] = _NEVER
        if count < self.shortest:
            log_p[..., EOS].masked_fill_((count < self.longest)[:, None], _NEVER)
        full = self.longest <= count
        if bool(full.any()):
            end = log_p[full, :, EOS]
            log_p[full] = _NEVER
            log_p[full, :, EOS] = end
        return self.forbid(log_p, written)

    def forbid(
        self,
        log_p: Float[Tensor, "batch hypotheses vocabulary"],
        written: Int[Tensor, "batch hypotheses tokens"],
    ) -> Float[Tensor, "batch hypotheses vocabulary"]:
        """The part of `restrict` that depends on which tokens were written, not on their number alone."""
        if self.no_repeat_ngram:
            rows, words = completing(written.flatten(0, 1), self.no_repeat_ngram)
            if self.prefix is not None:
                free = self.prefix.lengths[rows // written.shape[1]] <= written.shape[2]
                rows, words = rows[free], words[free]
            log_p.view(-1, log_p.shape[-1])[rows, words] = _NEVER
        return log_p if self.prefix is None else self.prefix.restrict(log_p, written.shape[2])
