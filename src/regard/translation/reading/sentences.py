"""Sentences translated in the reading that suits them."""

from collections.abc import Sequence
from dataclasses import replace

from regard.translation.reading.again import Reading, Translate
from regard.translation.reading.placeholders import carried
from regard.translation.reading.spelling import corrected
from regard.translation.results import Translation
from regard.translation.settings.search import Search
from regard.translation.text.names import WORD
from regard.translation.text.normalisation import normalise
from regard.translation.words import KnownWords


def translate(
    texts: Sequence[str], known: KnownWords, search: Search, translated: Translate, *, once: bool
) -> list[Translation]:
    """The translations of sentences.

    Args:
        known: the words of the training text.
        search: which readings are tried.
        translated: from sentences to translations.
        once: whether every sentence is translated once.
    """
    sources = list(map(normalise, texts))
    if search.accents:
        sources = [known.accents.restored(text, known.rank.keys()) for text in sources]
    readings = list(map(Reading, sources, translated(sources)))
    if search.spelling and not once:
        readings = corrected(known, readings, translated)
    if search.placeholders and not once:
        readings = carried(known, readings, translated)
    return [
        replace(found, source=text, read_as={**_changes(text, source), **found.read_as})
        for text, (source, found) in zip(texts, readings, strict=True)
    ]


def _changes(text: str, read: str) -> dict[str, str]:
    """The words of a text that were read as others."""
    both = zip(WORD.findall(normalise(text)), WORD.findall(read), strict=True)
    return {word: other for word, other in both if word != other}
