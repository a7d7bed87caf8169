"""Splitting of text into sentences, without losing a character."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from regard.errors import ConfigurationError, DataError

# Lines without an empty line between them form one paragraph of up to about so many characters.
_LONGEST_PARAGRAPH = 2**16
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOREIGN_SPACE = re.compile(r"[^\S\x00-\x7f]")
# The mark of an item of a list or of a heading, with the white space around it.
_MARK = re.compile(r"\s*(?:[-*+•]|#{1,6}|\d{1,3}[.)])[ \t]+(?=\S)")
# The start of each line that begins with a mark.
_ITEMS = re.compile(r"(?m)^(?=[ \t]*(?:[-*+•]|#{1,6}|\d{1,3}[.)])[ \t]+\S)")


class Sentence(NamedTuple):
    """A sentence and the white space around it, which is not translated."""

    before: str
    text: str
    after: str


def split(text: str, language: str) -> list[Sentence]:
    """The sentences of a text with the white space around them; joined, they give the text again.

    Sentencex finds them by its rules and abbreviations for the language, or by the English ones. An empty line ends
    a sentence; a single line break does so only before an item of a list. The mark of an item ("-", "*", "1.") is
    not part of its sentence. A lone surrogate becomes U+FFFD.

    Args:
        language: its ISO 639 code, "es".

    Raises:
        ConfigurationError: sentencex is not installed.
    """
    try:
        from sentencex import segment
    except ImportError:
        raise ConfigurationError(
            "cutting text into sentences needs sentencex: pip install 'regard[paragraphs]'"
        ) from None
    found: list[Sentence] = []
    for block in _ITEMS.split(_SURROGATE.sub("\ufffd", text)):
        mark = _MARK.match(block)
        start = mark.end() if mark else 0
        parts = list(_sentences(language, block[start:], segment))
        if mark:
            parts[0] = parts[0]._replace(before=block[:start] + parts[0].before)
        found += parts
    return found


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Lines joined into paragraphs of bounded length, with their line breaks and the empty lines after them.

    >>> list(paragraphs(["One", "two.", "", "Three."]))
    ['One\\ntwo.\\n\\n', 'Three.\\n']
    """
    held: list[str] = []
    size, ended = 0, False
    try:
        for line in lines:
            empty = not line.strip()
            if held and ((ended and not empty) or size >= _LONGEST_PARAGRAPH):
                yield "".join(held)
                held, size = [], 0
            held.append(line + "\n")
            size, ended = size + len(line) + 1, empty
    except DataError:  # the lines before the damaged one are still yielded
        if held:
            yield "".join(held)
        raise
    if held:
        yield "".join(held)


def join(parts: Iterable[Sentence], translations: Iterable[str]) -> str:
    """Translations in the places of the sentences that they translate.

    >>> join([Sentence("", "Sí.", "  "), Sentence("", "No.", "\\n")], ["Yes.", "No."])
    'Yes.  No.\\n'
    """
    both = zip(parts, translations, strict=True)
    return "".join(part.before + translation + part.after for part, translation in both)


def _sentences(
    language: str, text: str, segment: Callable[[str, str], list[str]]
) -> Iterator[Sentence]:
    """What sentencex finds; it is given plain spaces only, because it may panic at other white space."""
    place = 0
    for found in segment(language, _FOREIGN_SPACE.sub(" ", text)):
        part = text[place : place + len(found)]
        place += len(found)
        bare = part.strip()
        start = part.find(bare)
        yield Sentence(part[:start], bare, part[start + len(bare) :])
