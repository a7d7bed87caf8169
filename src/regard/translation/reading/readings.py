"""Sentences and their translations: as they are written, and as they are read."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from regard.translation.evaluation.alignment import WordLinks
from regard.translation.results import Translation
from regard.translation.settings.search import Search

# Another reading is clearer where the pieces of its translation are more probable by so much, in mean log-probability.
_MARGIN = 0.2


class SentenceTranslator(Protocol):
    """Translates sentences one by one, as they are written."""

    def translate(
        self, sentences: Sequence[str], search: Search, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """The translation of each sentence, which begins with its prefix."""

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        """Each sentence as its own translation, with the pieces and scores of the model."""

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[WordLinks]:
        """The links of the words, between white space, of sentences and translations."""


class TermTranslator(SentenceTranslator, Protocol):
    """Translates sentences that must have terms in their translations."""

    def translate(
        self,
        sentences: Sequence[str],
        search: Search,
        prefixes: Sequence[str] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
    ) -> list[Translation]:
        """The translation of each sentence, with its terms where the search can write them."""


class Reading(NamedTuple):
    """A sentence as it was read, and its translation."""

    source: str
    translation: Translation


def clearer(new: Translation, old: Translation, margin: float = _MARGIN) -> bool:
    """Whether the translation of another reading is more probable, and not by chance."""
    return _mean(new) > _mean(old) + margin


def _mean(translation: Translation) -> float:
    return translation.log_probability / max(1, len(translation.target_pieces))
