"""The settings of a tokenizer, as in the `[tokenizer]` table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from regard.translation.settings.base import Settings


class TokenizerSettings(Settings):
    """How text is cut into word pieces."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """How sentencepiece chooses word pieces: a unigram language model, or byte-pair encoding."""
    vocabulary_size: Annotated[int, Field(ge=8, le=1_000_000)] = 6000
    """Word pieces of a vocabulary, including 4 special ones, the tags and 256 bytes. A small text gives fewer."""
    joint: bool = True
    """Whether source and target share one vocabulary."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] | Literal["auto"] = "auto"
    """The part of the text whose characters are word pieces of their own; other characters are written
    as bytes. "auto" is 1 for alphabets, and 0.9995 for a text of more than 1,000 different characters.
    """
    sampling: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    """Subword regularisation (arXiv 1804.10959): words are cut anew in each pass, with probability proportional to
    P^sampling. 0 always takes the best segmentation.
    """

    @field_validator("character_coverage", mode="before")
    @classmethod
    def _most_of_the_text(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value != "auto" and not (number and 0.98 <= value <= 1):
            raise ValueError('use "auto", or a number from 0.98 to 1')
        return value

    def faults(self) -> Iterator[str]:
        if self.sampling and self.kind != "unigram":
            yield 'sampling needs kind = "unigram": BPE has one segmentation of a word'
