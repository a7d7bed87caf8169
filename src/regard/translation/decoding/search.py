"""How to search, as one value that is checked once, and the search itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from regard.translation.models.protocol import Searched, TranslationModel

# field -> (whole number, least, greatest)
_RANGES = {
    "beam": (True, 1, 1000),
    "nbest": (True, 1, 1000),
    "length_penalty": (False, 0, 10),
    "coverage_penalty": (False, 0, 10),
    "patience": (False, 0.01, math.inf),
    "max_length": (True, 1, 100_000),
    "length_ratio": (False, 0, 1000),
    "length_margin": (True, 0, 100_000),
    "min_length": (True, 0, 100_000),
    "no_repeat_ngram": (True, 0, 1000),
    "temperature": (False, 0.01, 100),
    "top_k": (True, 0, 10_000_000),
    "top_p": (False, 1e-6, 1),
}


@dataclass(frozen=True)
class Search:
    """The settings of a search.

    Attributes:
        beam: beginnings kept; 1 is greedy search.
        nbest: translations of each sentence, at most `beam`; when sampling, the number of draws.
        length_penalty: alpha of ((5 + n) / 6)^alpha; 0 ranks by probability, more favours length.
        coverage_penalty: beta; above 0 favours translations that looked at the whole source.
        patience: a sentence is done when `beam` x `patience` hypotheses have ended.
        max_length: tokens of a translation at most, whatever the source.
        length_ratio: tokens for each token of the source at most, its end counted, and
        length_margin: so many more. With the defaults, 2 and 10, no translation of Tatoeba's Spanish, French and
            English pairs is too long, in either direction: the longest has twice the source's tokens and 7 more.
        min_length: tokens of a translation at least.
        no_repeat_ngram: no sequence of so many tokens may occur twice in a translation; 0 allows all.
        sampling: draw words by chance instead of searching for the best.
        temperature: of sampling: below 1 bolder, above 1 more even.
        top_k: of sampling: draw among so many words; 0 for all.
        top_p: of sampling: draw among the fewest words that reach this probability.

    >>> Search(beam=2).longest(torch.tensor([4, 400]))
    tensor([ 18, 256])
    """

    beam: int = 5
    nbest: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    patience: float = 1.0
    max_length: int = 256
    length_ratio: float = 2.0
    length_margin: int = 10
    min_length: int = 0
    no_repeat_ngram: int = 0
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, (whole, least, greatest) in _RANGES.items():
            value = getattr(self, name)
            kinds = (int,) if whole else (int, float)
            good = isinstance(value, kinds) and not isinstance(value, bool)
            if not good or not least <= value <= greatest:
                kind = "a whole number" if whole else "a number"
                upto = f"{least} or more" if greatest == math.inf else f"{least} to {greatest}"
                raise ConfigurationError(f"{name} {value!r}: use {kind}, {upto}")
        if self.nbest > self.beam and not self.sampling:
            raise ConfigurationError(
                f"nbest {self.nbest} with beam {self.beam}: use a beam of at least {self.nbest}"
            )
        if self.sampling and self.coverage_penalty:
            raise ConfigurationError(
                "coverage_penalty is for beam search: leave it out, or sampling"
            )
        if self.coverage_penalty and self.beam == 1:
            raise ConfigurationError(
                "coverage_penalty chooses among the beam's translations: use a beam of 2 or more"
            )

    @property
    def hypotheses(self) -> int:
        """How many of a sentence are computed at a time."""
        return self.nbest if self.sampling else self.beam

    def longest(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """How long each translation may become: a runaway ends, and does not hold up the others."""
        allowed = (lengths * self.length_ratio).ceil().long() + self.length_margin
        return allowed.clamp(max=self.max_length)


def translate_batch(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    search: Search | None = None,
    *,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    lists: Sequence[Int[Tensor, " listed"]] | None = None,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch the way `search` says.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        search: the settings; None for the defaults, beam search with 5.
        prefix: the tokens each translation must begin with.
        lists: the ids of the words that each may be written with, in order; None for all, as prefixes ask for.
        generator: for sampling, on the device of the source.

    Returns:
        For each sentence its `nbest` hypotheses (fewer where the limits allow no more), best first.

    Raises:
        ConfigurationError: prefixes or lists that do not fit the batch, or each other; prefixes that do not fit
            the vocabulary.
        ModelError: logits that are not numbers.
    """
    search = search or Search()
    if lists is None:
        found = _searched(model, source, lengths, search, prefix, generator)
    else:
        _check_lists(lists, len(source), prefix)
        narrowed = Narrowed(model, lists)
        found = [
            [narrowed.spelt(one, sentence) for one in hypotheses]
            for sentence, hypotheses in enumerate(
                _searched(narrowed, source, lengths, search, None, generator)
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
