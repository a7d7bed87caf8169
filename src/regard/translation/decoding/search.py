"""Translates a batch by greedy, beam or sampled search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.beam import beam
from regard.translation.decoding.coverage import rerank
from regard.translation.decoding.greedy import greedy
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.narrowed import Narrowed
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.sample import sample
from regard.translation.engines import LayersEngine, Searched, SearchEngine
from regard.translation.models.protocol import TranslationModel
from regard.translation.settings import Search

__all__ = ["Search", "bounds", "translate_batch"]


def translate_batch(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    search: Search | None = None,
    *,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    lists: Sequence[Int[Tensor, " listed"]] | None = None,
    generator: torch.Generator | None = None,
    engine: SearchEngine | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch the way `search` says.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        search: the settings; None for the defaults, beam search with 5.
        prefix: the tokens each translation must begin with.
        lists: the ids of the words that each may be written with, in order; None for all, as prefixes ask for.
        generator: for sampling, on the device of the source.
        engine: it runs the model; None for the model's own layers.

    Returns:
        For each sentence its `nbest` hypotheses (fewer where the limits allow no more), best first.

    Raises:
        ConfigurationError: prefixes or lists that do not fit the batch, or each other; prefixes that do not fit
            the vocabulary.
        ModelError: logits that are not numbers.
    """
    search = search or Search()
    engine = engine or LayersEngine(model)
    if lists is None:
        found = _searched(engine, engine.loops, source, lengths, search, prefix, generator)
    else:
        _check_lists(lists, len(source), prefix)
        narrowed = Narrowed(engine, lists)
        found = [
            [narrowed.spelt(one, sentence) for one in hypotheses]
            for sentence, hypotheses in enumerate(
                _searched(narrowed, engine.loops, source, lengths, search, None, generator)
            )
        ]
    if search.coverage_penalty:
        found = rerank(model, source, lengths, found, search.coverage_penalty)
    return [hypotheses[: search.nbest] for hypotheses in found]


def bounds(
    model: Searched, search: Search, lengths: Int[Tensor, " batch"]
) -> Int[Tensor, " batch"]:
    """How long each translation may become: by the settings, and by the positions that the model has learnt."""
    longest = search.longest(lengths)
    return longest if model.longest is None else longest.clamp(max=model.longest - 1)


def _searched(
    model: Searched,
    compiled: bool,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    search: Search,
    prefix: Prefixes | Sequence[Sequence[int]] | None,
    generator: torch.Generator | None,
) -> list[list[Hypothesis]]:
    longest = bounds(model, search, lengths)
    if search.sampling:
        return sample(
            model,
            source,
            lengths,
            max_length=longest,
            min_length=search.min_length,
            prefix=prefix,
            no_repeat_ngram=search.no_repeat_ngram,
            length_penalty=search.length_penalty,
            temperature=search.temperature,
            top_k=search.top_k,
            top_p=search.top_p,
            draws=search.nbest,
            generator=generator,
        )
    if search.beam == 1:
        return greedy(
            model,
            source,
            lengths,
            max_length=longest,
            min_length=search.min_length,
            prefix=prefix,
            no_repeat_ngram=search.no_repeat_ngram,
            length_penalty=search.length_penalty,
            compiled=compiled,
        )
    return beam(
        model,
        source,
        lengths,
        size=search.beam,
        max_length=longest,
        min_length=search.min_length,
        prefix=prefix,
        no_repeat_ngram=search.no_repeat_ngram,
        length_penalty=search.length_penalty,
        nbest=search.beam if search.coverage_penalty else search.nbest,
        patience=search.patience,
        compiled=compiled,
    )


def _check_lists(lists: Sequence[Tensor], sentences: int, prefix: object) -> None:
    if prefix is not None:
        raise ConfigurationError("a prefix may ask for any word: give it, or lists of words")
    if len(lists) != sentences:
        raise ConfigurationError(f"{len(lists)} lists of words for {sentences} sentences")
    if not all(bool((each.diff() > 0).all() and (each >= 0).all()) for each in lists):
        raise ConfigurationError(
            "a list of words is not in order: give each id once, the least first"
        )
