"""Sampling: every next word drawn from what the model holds probable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits, log_probabilities
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.ranking import top
from regard.translation.decoding.unroll import IMPOSSIBLE, unroll
from regard.translation.engines.protocol import Searched


def sample(
    model: Searched,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    max_length: int | Int[Tensor, " batch"],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    draws: int = 1,
    min_length: int = 0,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    no_repeat_ngram: int = 0,
    length_penalty: float = 1.0,
) -> list[list[Hypothesis]]:
    """Translate a batch by drawing y_t from p(y | y_1 ... y_(t-1), source)^(1 / temperature).

    Only the `top_k` most probable words (Fan et al. 2018, arXiv 1805.04833) and the fewest whose
    probabilities reach `top_p` (Holtzman et al. 2020, arXiv 1904.09751) may be drawn. The
    log-probabilities kept are the model's own, not those at the temperature.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        max_length: tokens of a translation at most, one number or one a sentence.
        temperature: below 1 bolder in what is probable, above 1 more even.
        top_k: words that may be drawn; 0 for all.
        top_p: probability that they must reach together, after the temperature; 1 for all.
        generator: where the chance comes from, on the device of the source.
        draws: translations of each sentence; they may be alike.
        min_length: tokens of a translation at least.
        prefix: the tokens each translation must begin with.
        no_repeat_ngram: no sequence of so many tokens may occur twice, except in the prefix; 0 allows all.
        length_penalty: alpha of the score; it changes the score only.

    Returns:
        For each sentence its draws, the best score first.

    Raises:
        ConfigurationError: settings that make no sense.
        ModelError: logits that are not numbers.
    """
    if not 0 < temperature < math.inf:
        raise ConfigurationError(f"temperature {temperature}: use a number above 0")
    if top_k < 0:
        raise ConfigurationError(f"top_k {top_k}: use 1 or more, or 0 for every word")
    if not 0 < top_p <= 1:
        raise ConfigurationError(f"top_p {top_p}: use a number above 0, at most 1")
    if draws < 1:
        raise ConfigurationError(f"draws {draws}: use 1 or more")

    def drawn(
        logits: Float[Tensor, "batch vocabulary"],
        limits: Limits,
        written: Int[Tensor, "batch tokens"],
    ) -> tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]]:
        log_p = log_probabilities(logits).unsqueeze(1)
        log_p = limits.restrict(log_p, written.unsqueeze(1)).squeeze(1)
        kept = keep_probable(log_p / temperature, top_k, top_p)
        if bool((kept.amax(-1) == -math.inf).any()):
            raise ModelError(IMPOSSIBLE)
        words = torch.multinomial(kept.softmax(-1), 1, generator=generator)
        return words.squeeze(1), log_p.gather(1, words).squeeze(1)

    limits = Limits.of(
        len(source),
        max_length,
        min_length=min_length,
        prefix=prefix,
        no_repeat_ngram=no_repeat_ngram,
        device=source.device,
    )
    each = torch.arange(len(source), device=source.device).repeat_interleave(draws)
    found = unroll(model, source[each], lengths[each], limits.select(each), drawn, length_penalty)
    return [
        sorted(found[i : i + draws], key=lambda one: -one.score)
        for i in range(0, len(found), draws)
    ]


def keep_probable(
    scores: Float[Tensor, "rows vocabulary"], top_k: int = 0, top_p: float = 1.0
) -> Float[Tensor, "rows vocabulary"]:
    """The scores with every word outside `top_k` and `top_p` at -inf; the best one always stays."""
    if top_k == 0 and top_p == 1:
        return scores
    best, words = top(scores, min(top_k or scores.shape[-1], scores.shape[-1]))
    probable = best.softmax(-1)
    # A word stays when those before it have not yet reached top_p.
    best = best.masked_fill(probable.cumsum(-1) - probable >= top_p, -math.inf)
    return torch.full_like(scores, -math.inf).scatter(-1, words, best)
