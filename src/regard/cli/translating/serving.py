"""`regard translate --engine ctranslate2`: an engine with the methods of a translator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.cli.options.model import WeightType, open_translator
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.interop.engine import Engine
    from regard.translation.decoding.search import Search
    from regard.translation.translator import Translation, Translator


@dataclass
class Served:
    """An engine with the methods of a translator that the command calls."""

    engine: Engine
    source_language: str

    @property
    def longest(self) -> int:
        return self.engine.longest

    @property
    def search(self) -> Search:
        return self.engine.search

    def translate(
        self, texts: Sequence[str], *, search: Search, **unused: Any
    ) -> list[Translation]:
        """The command has refused all other settings already."""
        return self.engine.translate(
            texts,
            beam=search.beam,
            length_penalty=search.length_penalty,
            nbest=search.nbest,
            no_repeat_ngram=search.no_repeat_ngram,
        )


def explanation(translator: Translator | Served) -> str:
    """The line of --explain: which engine searches, and why a faster one does not."""
    if isinstance(translator, Served):
        return "engine: ctranslate2"
    engine = translator.engine
    return f"engine: {engine.name}" + (f" ({engine.reason})" if engine.reason else "")


def served(models: Sequence[str], to: str | None, weights: WeightType, paragraphs: bool) -> Served:
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
    translator = open_translator(models, "cpu", to)
    return Served(cache.cached_engine(translator, weights.value), translator.source_language)
