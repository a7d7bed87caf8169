"""The settings of a search: those of the `[search]` table, and those of one search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from regard.errors import ConfigurationError
from regard.translation.settings.base import Settings

Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPenalty = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class SearchSettings(Settings):
    """How a trained model searches for a translation by default. Options of a command change it for one call."""

    beam: Beam = 5
    """Hypotheses that beam search keeps. 1 is greedy search."""
    length_penalty: LengthPenalty = 1.0
    """Exponent alpha of the length penalty ((5 + n) / 6)^alpha (arXiv 1609.08144). 0 ranks by probability alone."""
    patience: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The search of a sentence ends when `beam` times `patience` hypotheses have ended, though a better one may be
    alive (arXiv 2204.05424). 0 ends it when none can become better."""
    length_ratio: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 2.0
    """Pieces of a translation at most, for each piece of its source and its end; `length_margin` is added."""
    length_margin: Annotated[int, Field(ge=0, le=100_000)] = 10
    """Pieces that a translation may have beyond `length_ratio` times its source."""
    no_repeat_ngram: Annotated[int, Field(ge=0, le=1000)] = 0
    """Pieces of a sequence that may not occur twice in a translation. 0 allows every repetition."""
    capitals: bool = True
    """Whether a sentence of capitals alone is read in small letters, and its translation written in capitals. Where the
    beginning of the translation is given, the sentence is read as it is.
    """
    numbers: bool = True
    """Whether a sentence with digits and without letters is its own translation. Not for generated data, for training
    text that translates such sentences otherwise ("5", "five"), and where the beginning of the translation is given.
    """
    spans: bool = True
    """Whether stretches that a model cannot read (markup, code, addresses, placeholders of formats, symbols, words of
    other scripts) are taken out of a sentence, or carried by a common name, and put back at their places in the
    translation. Not for generated data, and where the beginning of the translation is given."""
    inventions: bool = True
    """Whether a word that neither the training text nor the source has is replaced by the word of the source that it is
    linked to. Not where the beginning of the translation is given."""
    stops: bool = True
    """Whether a line without a final mark is divided where, by the words beside, sentences seem to end."""
    accents: bool = True
    """Whether accents are restored in a sentence that has none, and in words that no training source has."""
    spelling: bool = True
    """Whether words that no training source has are read as known ones that differ in one letter, where that makes the
    translation clearly more probable."""
    constraints: bool = True
    """Whether a sentence whose translation lacks terms of a glossary is translated again, by a beam search that must
    write them (arXiv 1804.06609). Where that is clearly less probable, words that are linked to terms give way to them.
    """
    placeholders: bool = True
    """Whether a sentence whose translation lost a name or number is translated again, with a common name or number in
    its place, which is then replaced. This and `spelling` not where the beginning of the translation is given."""


class Search(SearchSettings):
    """The settings of one search: those of `[search]` and more.

    With the defaults of `length_ratio` and `length_margin`, no translation of Tatoeba's Spanish, French and English
    pairs is too long, in either direction: the longest has twice the pieces of its source and 7 more.

    Raises:
        ConfigurationError: a setting is out of range, or two exclude each other.
    """

    nbest: Annotated[int, Field(ge=1, le=1000)] = 1
    """Translations of each sentence, at most `beam`. When sampling, the number of draws."""
    coverage_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    """Weight beta of the coverage of the source in the ranking of the hypotheses (arXiv 1609.08144). 0 ignores it."""
    max_length: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Pieces of a translation at most, whatever its source."""
    min_length: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Pieces of a translation at least."""
    search_again: bool = True
    """Whether a translation that repeats itself is replaced by that of a second search, with twice the beam, in which
    no sequence of four pieces occurs twice. Not with `no_repeat_ngram`."""
    sampling: bool = False
    """Whether pieces are drawn at random; otherwise the most probable translation is searched for."""
    temperature: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = 1.0
    """Divides the logits when sampling: below 1 favours probable pieces, above 1 improbable ones."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """When sampling, the number of most probable pieces to draw from. 0 draws from all."""
    top_p: Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False)] = 1.0
    """When sampling, draw from the fewest pieces whose probabilities sum to this."""

    def faults(self) -> Iterator[str]:
        if self.nbest > self.beam and not self.sampling:
            yield f"nbest {self.nbest} with beam {self.beam}: use a beam of at least {self.nbest}"
        if self.sampling and self.coverage_penalty:
            yield "coverage_penalty is for beam search: leave it out, or sampling"
        if self.coverage_penalty and self.beam == 1:
            yield "coverage_penalty chooses among the beam's translations: use a beam of 2 or more"

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, settings: Any, validate: ModelWrapValidatorHandler[Search]) -> Search:
        try:
            return validate(settings)
        except ValidationError as fault:
            raise ConfigurationError(*map(_explain, fault.errors())) from None

    def as_written(self) -> Self:
        """The search that reads every word as it is written."""
        return self.changed(
            spans=False,
            stops=False,
            inventions=False,
            accents=False,
            spelling=False,
            constraints=False,
            placeholders=False,
        )


def _explain(error: Any) -> str:
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    name, keys = error["loc"][0], Search.model_json_schema()["properties"]
    if name not in keys:
        return f"{name}: not a setting of a search, known are {', '.join(keys)}"
    smallest, largest = keys[name].get("minimum"), keys[name].get("maximum")
    bounds = f"{smallest} or more" if largest is None else f"{smallest} to {largest}"
    ranges = {
        "boolean": "True or False",
        "integer": f"a whole number, {bounds}",
        "number": f"a number, {bounds}",
    }
    return f"{name} {error['input']!r}: use {ranges[keys[name]['type']]}"
