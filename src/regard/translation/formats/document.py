"""A file of a format: passages to translate, in a text that otherwise stays to the byte."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import BinaryIO, Protocol

from regard.errors import DataError
from regard.translation.text.corpora import decoded_lines, raw_lines
from regard.translation.text.replacements import Replacement, replaced

# Files of a format are held in memory as a whole.
LARGEST = 64 * 2**20  # bytes


class Passage(Protocol):
    """A passage of a document: texts that are translated, each by itself, and their places."""

    @property
    def start(self) -> int:
        """Its first character in the document."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts to translate."""

    def replacements(self, translations: Sequence[str]) -> Iterable[Replacement]:
        """The changes that put one translation of each text in its place, in their order."""


@dataclass(frozen=True)
class Document:
    """The text of a file and its passages, in their order.

    Attributes:
        text: the file, decoded; its line ends and its byte order mark are kept.
    """

    text: str
    passages: Sequence[Passage]

    @property
    def texts(self) -> list[str]:
        return [text for passage in self.passages for text in passage.texts]

    def lines(self) -> Iterator[int]:
        """The line of the passage of each text, from 1."""
        line, end = 1, 0
        for passage in self.passages:
            line, end = line + self.text.count("\n", end, passage.start), passage.start
            yield from (line for _ in passage.texts)

    def translated(self, translations: Sequence[str]) -> str:
        """The file with one translation for each of `texts`."""
        supply = iter(translations)
        changes = (
            passage.replacements(list(islice(supply, len(passage.texts))))
            for passage in self.passages
        )
        return replaced(self.text, chain.from_iterable(changes))


def decode(file: BinaryIO, name: str) -> str:
    """The text of an open file in UTF-8, with its line ends.

    Raises:
        DataError: it is larger than `LARGEST`, cannot be read or is not UTF-8; names the line and the byte.
    """
    lines: list[bytes] = []
    size = 0
    for line in raw_lines(file, name, LARGEST):
        lines.append(line)
        size += len(line)
        if size > LARGEST:
            raise DataError(f"{name}: larger than {LARGEST} bytes: divide it")
    content = b"".join(lines)
    try:
        return content.decode()
    except UnicodeDecodeError:
        for _ in decoded_lines(io.BytesIO(content), name):  # raises, with the line
            pass
        raise


def refuse(name: str, text: str, place: int, objection: str) -> DataError:
    """The error for what is broken at a character of a text: "file:line: objection"."""
    line = text.count("\n", 0, place) + 1
    return DataError(f"{name}:{line}: {objection}")
