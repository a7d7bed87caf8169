"""The words that a search may write next, and the best of them: no padding, no second beginning, an end in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.ranking import top
from regard.errors import ConfigurationError, ModelError
from regard.loops.threads import run_shares
from regard.translation.decoding.constraints import Constraints
from regard.translation.decoding.hypothesis import completing
from regard.translation.decoding.prefix import LogP, Prefixes, Written
from regard.translation.models.protocol import DAMAGED, Lengths, Logits, log_probabilities
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import BOS, EOS, PAD

_NEVER = float("-inf")
_LEAST = 12  # rows for which a second thread pays
IMPOSSIBLE = "every translation within the length limits has probability 0 under this model"


@dataclass(frozen=True)
class Limits:
    """How long each sentence's translation may and must be, and how it must begin.

    Attributes:
        longest: tokens a translation may have at most, the end of the sentence not counted.
        shortest: tokens it must have at least; where `longest` is less, `longest` counts.
        prefix: how it must begin; None for anyhow.
        constraints: what it must contain; None for nothing.
        no_repeat_ngram: no sequence of so many tokens may occur twice, except in the prefix; 0 allows all.
    """

    longest: Int[Tensor, " batch"]
    shortest: int = 0
    prefix: Prefixes | None = None
    no_repeat_ngram: int = 0
    constraints: Constraints | None = None

    @classmethod
    def of(
        cls,
        longest: Int[Tensor, " batch"],
        search: Search,
        prefix: Prefixes | Sequence[Sequence[int]] | None = None,
        constraints: Constraints | None = None,
    ) -> Self:
        """The limits of a batch. Prefixes and constraints that are longer than `longest` make room for themselves.

        Raises:
            ConfigurationError: not one prefix a sentence, prefixes with padding or ends, or prefixes and constraints.
        """
        if constraints is not None:
            if prefix is not None:
                raise ConfigurationError("prefixes and constraints: leave one of them out")
            longest = torch.maximum(longest, longest.new_tensor(constraints.lengths))
        if prefix is None:
            return cls(longest, search.min_length, None, search.no_repeat_ngram, constraints)
        prefixes = prefix if isinstance(prefix, Prefixes) else Prefixes.of(prefix, longest.device)
        if len(prefixes.tokens) != len(longest):
            raise ConfigurationError(
                f"{len(prefixes.tokens)} prefixes for {len(longest)} sentences"
            )
        longest = torch.maximum(longest, prefixes.lengths)
        return cls(longest, search.min_length, prefixes, search.no_repeat_ngram)

    def select(self, sentences: Int[Tensor, " kept"]) -> Limits:
        prefix = None if self.prefix is None else self.prefix.select(sentences)
        constraints = None if self.constraints is None else self.constraints.select(sentences)
        longest = self.longest[sentences]
        return replace(self, longest=longest, prefix=prefix, constraints=constraints)

    def restrict(self, log_p: LogP, tokens: Written) -> LogP:
        """Set what may not follow these tokens to -inf, in place; the rest keeps its value."""
        count = tokens.shape[2]
        log_p[..., PAD] = _NEVER
        log_p[..., BOS] = _NEVER
        if count < self.shortest:
            log_p[..., EOS].masked_fill_((count < self.longest)[:, None], _NEVER)
        full = self.longest <= count
        if bool(full.any()):
            end = log_p[full, :, EOS]
            log_p[full] = _NEVER
            log_p[full, :, EOS] = end
        return self.forbid(log_p, tokens)

    def forbid(self, log_p: LogP, tokens: Written) -> LogP:
        """The part of `restrict` that depends on which tokens were written, not on their number alone."""
        if self.constraints is not None:
            self.constraints.restrict(log_p, tokens)
        if self.no_repeat_ngram:
            rows, words = completing(tokens.flatten(0, 1), self.no_repeat_ngram)
            if self.prefix is not None:
                free = self.prefix.lengths[rows // tokens.shape[1]] <= tokens.shape[2]
                rows, words = rows[free], words[free]
            log_p.view(-1, log_p.shape[-1])[rows, words] = _NEVER
        return log_p if self.prefix is None else self.prefix.restrict(log_p, tokens.shape[2])


def bounds(search: Search, lengths: Lengths, positions: int | None = None) -> Lengths:
    """The most tokens of each translation: by the length of its source with its end, and by a model's positions.

    >>> bounds(Search(beam=2), torch.tensor([4, 400]))
    tensor([ 18, 256])
    """
    allowed = (lengths * search.length_ratio).ceil().long() + search.length_margin
    largest = search.max_length if positions is None else min(search.max_length, positions - 1)
    return allowed.clamp(max=largest)


def best_words(
    logits: Logits,
    limits: Limits,
    tokens: Written,
    count: int,
    *,
    compiled: bool,
    normalised: bool = False,
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The log-probabilities of the `count` best words that may follow, and the words; of equals the first.

    Both ways, by compiled loops and by torch, give the same words; loops serve float32 on processors.

    `normalised` says that logits are log-probabilities: then loops compute no sum of them.
    Rows are the beginnings of each sentence side by side. Where fewer words may follow, or there
    are no more, the rest is -inf.

    Raises:
        ModelError: a logit is not a number.
    """
    count = min(count, logits.shape[1])
    if compiled and logits.is_cpu and logits.dtype == torch.float32:
        return _best_words_compiled(logits.contiguous(), limits, tokens, count, normalised)
    allowed = log_probabilities(logits).view(len(limits.longest), -1, logits.shape[1])
    return top(limits.restrict(allowed, tokens).flatten(0, 1), count)


def _best_words_compiled(
    logits: Tensor, limits: Limits, tokens: Tensor, count: int, normalised: bool
) -> tuple[Tensor, Tensor]:
    from regard.translation.decoding import search_loops

    rows, vocabulary = logits.shape
    allowed = logits
    if limits.prefix is not None or limits.no_repeat_ngram or limits.constraints is not None:
        allowed = logits.clone()
        limits.forbid(allowed.view(len(limits.longest), -1, vocabulary), tokens)
    values, words = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
    end = search_loops.NO_END if tokens.shape[2] < limits.shortest else search_loops.ANY
    rule_of_sentence = np.where(
        limits.longest.numpy() <= tokens.shape[2], search_loops.ONLY_END, end
    )
    rules = np.repeat(rule_of_sentence, rows // len(rule_of_sentence))
    arrays = (rules, *(tensor.numpy() for tensor in (logits, allowed, values, words)))

    def choose(begin: int, end: int) -> None:
        if not search_loops.best_few(normalised, *(array[begin:end] for array in arrays)):
            raise ModelError(DAMAGED)

    if rows < 2 * _LEAST:
        choose(0, rows)
    else:
        run_shares(rows, choose, least=_LEAST)
    return values, words
