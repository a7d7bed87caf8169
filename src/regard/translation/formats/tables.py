"""Tables with tabs between their columns: the cells of some columns are translated, the others are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.translation.formats.document import Document, refuse
from regard.translation.text.replacements import Replacement


@dataclass(frozen=True)
class Cell:
    """The text of a cell, without white space around it."""

    start: int
    stop: int
    source: str

    @property
    def texts(self) -> Sequence[str]:
        return [self.source]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        yield Replacement(self.start, self.stop, " ".join(translations[0].split()))


def read(text: str, name: str, columns: Sequence[int]) -> Document:
    """The cells of these columns that have letters; columns count from 1.

    Raises:
        DataError: a line has too few columns; names it.
    """
    return Document(text, list(_cells(text, name, sorted(set(columns)))))


def _cells(text: str, name: str, columns: Sequence[int]) -> Iterator[Cell]:
    start = 0
    for line in text.split("\n"):
        cells = line.split("\t")
        if line.strip("\ufeff\r") and len(cells) < columns[-1]:
            objection = (
                f"expected at least {columns[-1]} columns with tabs between them, got {len(cells)}"
            )
            raise refuse(name, text, start, objection)
        for column in columns[: len(cells)] if line.strip() else ():
            cell = cells[column - 1].lstrip("\ufeff")
            if any(map(str.isalpha, cell)):
                place = start + sum(len(each) + 1 for each in cells[:column]) - 1
                begin = place - len(cell.lstrip())
                yield Cell(begin, begin + len(cell.strip()), cell.strip())
        start += len(line) + 1
