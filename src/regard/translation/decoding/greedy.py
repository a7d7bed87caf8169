"""Greedy search: the most probable word, then the next."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.decoding.candidates import best_words
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.unroll import unroll
from regard.translation.engines.protocol import Searched


def greedy(
    model: Searched,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    max_length: int | Int[Tensor, " batch"],
    min_length: int = 0,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    no_repeat_ngram: int = 0,
    length_penalty: float = 1.0,
    compiled: bool = True,
) -> list[list[Hypothesis]]:
    """Translate a batch greedily: y_t = argmax p(y | y_1 ... y_(t-1), source), first of equals.

    The same as `beam` with size 1.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        max_length: tokens of a translation at most, one number, or one for each sentence; longer ones are ended there.
        min_length: tokens of a translation at least.
        prefix: the tokens each translation must begin with.
        no_repeat_ngram: no sequence of so many tokens may occur twice, except in the prefix; 0 allows all.
        length_penalty: alpha of the score; it changes the score only.

    Returns:
        For each sentence a list with its one hypothesis.

    Raises:
        ConfigurationError: limits that do not fit the batch.
        ModelError: logits that are not numbers.
    """
    limits = Limits.of(
        len(source),
        max_length,
        min_length=min_length,
        prefix=prefix,
        no_repeat_ngram=no_repeat_ngram,
        device=source.device,
    )

    def best(
        logits: Float[Tensor, "batch vocabulary"],
        limits: Limits,
        written: Int[Tensor, "batch tokens"],
    ) -> tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]]:
        log_p, words = best_words(logits, limits, written.unsqueeze(1), 1, compiled=compiled)
        return words[:, 0], log_p[:, 0]

    return [[one] for one in unroll(model, source, lengths, limits, best, length_penalty)]
