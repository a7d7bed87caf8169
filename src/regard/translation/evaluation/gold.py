"""Gold alignments from files: JSON lines with the words, or links alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from regard.errors import DataError
from regard.translation.evaluation.alignment import Link, flipped, parse_links
from regard.translation.text.corpora import read_lines

_Words = Annotated[list[str], Field(max_length=10_000)]


class _Line(BaseModel, strict=True):
    """One sentence as an object of JSON."""

    src: _Words
    tgt: _Words
    sure: set[Link] = set()
    possible: set[Link] = set()


@dataclass(frozen=True)
class Gold:
    """Sentences with word links that people have made.

    Attributes:
        sure: by sentence, links that are certain.
        possible: by sentence, links that are also accepted.
        words: by sentence, the source's words and the target's; None where the file has links alone.
    """

    sure: list[set[Link]]
    possible: list[set[Link]]
    words: list[tuple[list[str], list[str]]] | None = None

    def __len__(self) -> int:
        return len(self.sure)

    def flipped(self) -> Gold:
        words = None if self.words is None else [(target, source) for source, target in self.words]
        return Gold(
            [flipped(links) for links in self.sure],
            [flipped(links) for links in self.possible],
            words,
        )


def read_gold(path: Path, limit: int | None = None) -> Gold:
    """Gold links, one sentence a line.

    A line is either an object with "src" and "tgt" (lists of words), "sure" and, if any,
    "possible" (lists of [source, target] pairs, from 0), or links in Pharaoh's manner: "0-0 1-2"
    sure, "1?2" possible.

    Raises:
        DataError: a line is neither, a link has no such word, or the file is empty; names the line.
    """
    lines = list(islice(read_lines(path), limit))
    if not lines:
        raise DataError(f"{path}: the file has no gold alignments")
    if lines[0].lstrip().startswith("{"):
        objects = [_object(path, n, line) for n, line in enumerate(lines, start=1) if line.strip()]
        words = [(each.src, each.tgt) for each in objects]
        return Gold([each.sure for each in objects], [each.possible for each in objects], words)
    links = [_parsed(path, number, line) for number, line in enumerate(lines, start=1)]
    return Gold([sure for sure, _ in links], [possible for _, possible in links])


def read_links(path: Path) -> list[set[Link]]:
    """The links of a system, one sentence a line, as `regard align` writes them.

    Raises:
        DataError: an item is not a link; names file and line.
    """
    return [
        set.union(*_parsed(path, number, line))
        for number, line in enumerate(read_lines(path), start=1)
    ]


def _parsed(path: Path, number: int, line: str) -> tuple[set[Link], set[Link]]:
    try:
        return parse_links(line)
    except DataError as fault:
        raise DataError(f"{path}:{number}: {fault}") from None


def _object(path: Path, number: int, line: str) -> _Line:
    where = f"{path}:{number}: not a gold alignment"
    try:
        gold_line = _Line.model_validate_json(line)
    except ValidationError as fault:
        error = fault.errors()[0]
        key = ".".join(map(str, error["loc"])) or "the line"
        raise DataError(
            f"{where}: {key}: {error['msg'][:200]}: expected lists of words "
            '"src" and "tgt", and lists of pairs [source, target] "sure" and "possible"'
        ) from None
    source, target = len(gold_line.src), len(gold_line.tgt)
    for link in [*gold_line.sure, *gold_line.possible]:
        if not (0 <= link[0] < source and 0 <= link[1] < target):
            raise DataError(
                f"{where}: link {list(link)} is outside of the sentence, which has {source} source"
                f" and {target} target words, counted from 0"
            )
    return gold_line
