"""`regard translate --engine ctranslate2`: what is asked of that engine, and what it has no answer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from regard.cli import options
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.interop.engine import Engine
    from regard.translation.decoding.search import Search
    from regard.translation.translator import Translation


class EngineName(StrEnum):
    regard = "regard"
    ctranslate2 = "ctranslate2"


@dataclass
class Served:
    """An engine that is asked as a translator is."""

    engine: Engine
    source_language: str

    @property
    def longest(self) -> int:
        return self.engine.longest

    @property
    def search(self) -> Search:
        return self.engine.search

    def translate(
        self, texts: Sequence[str], *, search: Search, **nothing: Any
    ) -> list[Translation]:
        """Settings besides the search are those that were refused before they got here."""
        return self.engine.translate(
            texts,
            beam=search.beam,
            length_penalty=search.length_penalty,
            nbest=search.nbest,
            no_repeat_ngram=search.no_repeat_ngram,
        )


def refuse(others: dict[str, bool]) -> None:
    """Raises `ConfigurationError` naming the first that only our own search can do."""
    for option, given in others.items():
        if given:
            raise ConfigurationError(
                f"--engine ctranslate2 and {option} do not go together: that engine gives texts and their "
                "scores; leave --engine out"
            )


def served(
    models: Sequence[str], to: str | None, stored: options.Stored, paragraphs: bool
) -> Served:
    """The engine of a bundled model, a run or an exported folder.

    Raises:
        ConfigurationError: ctranslate2 is not installed, or several models are given.
        ModelError: the model cannot be exported.
    """
    from regard.interop import cache, ctranslate2
    from regard.interop.engine import Engine

    ctranslate2.library()
    if len(models) > 1:
        raise ConfigurationError("--engine ctranslate2 serves one model: give --model once")
    if cache.is_exported(models[0]):
        if to is not None:
            raise ConfigurationError(
                f"--to {to} and an exported folder do not go together: name the model it was made of"
            )
        if paragraphs:
            raise ConfigurationError(
                "--paragraphs and an exported folder do not go together: it does not tell its language; "
                "name the model it was made of"
            )
        return Served(Engine(models[0]), "")
    translator = options.open_translator(models, "cpu", to)
    return Served(cache.cached_engine(translator, stored.value), translator.source_language)
