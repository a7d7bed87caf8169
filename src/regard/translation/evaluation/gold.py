"""Gold alignments from files: JSON lines with the words, or links alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.translation.evaluation.alignment import Link, flipped, parse_links
from regard.translation.text.corpora import read_lines

_LONGEST_SENTENCE = 10_000


@dataclass(frozen=True)
class Gold:
    """Sentences whose word links people have drawn.

    Attributes:
        sure: by sentence, links that are certain.
        possible: by sentence, links that may be there as well.
        words: by sentence, the source's words and the target's; None where the file has links alone.
    """

    sure: list[set[Link]]
    possible: list[set[Link]]
    words: list[tuple[list[str], list[str]]] | None = None

    def __len__(self) -> int:
        return len(self.sure)

    def flipped(self) -> Gold:
        """Source and target exchanged."""
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
        DataError: a line that is neither, links beyond the words, or no line at all; names the line.
    """
    lines = list(islice(read_lines(path), limit))
    if not lines:
        raise DataError(f"{path}: no gold alignments in it")
    if lines[0].lstrip().startswith("{"):
        return _from_objects(path, lines)
    found = [_parsed(path, number, line) for number, line in enumerate(lines, start=1)]
    return Gold([sure for sure, _ in found], [possible for _, possible in found])


def read_links(path: Path) -> list[set[Link]]:
    """The links of a system, one sentence a line, as `regard align` writes them.

    Raises:
        DataError: something that is no link; names file and line.
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


def _from_objects(path: Path, lines: list[str]) -> Gold:
    words: list[tuple[list[str], list[str]]] = []
    gold = Gold([], [], words)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            source, target = list(_words(given, "src")), list(_words(given, "tgt"))
            sure, possible = (
                set(_pairs(given, name, len(source), len(target))) for name in ("sure", "possible")
            )
        except (ValueError, RecursionError) as fault:
            raise DataError(f"{path}:{number}: no gold alignment: {str(fault)[:200]}") from None
        words.append((source, target))
        gold.sure.append(sure)
        gold.possible.append(possible)
    return gold


def _words(given: Any, name: str) -> Iterator[str]:
    words = given.get(name) if isinstance(given, dict) else None
    if not isinstance(words, list) or len(words) > _LONGEST_SENTENCE:
        raise ValueError(f'expected "{name}", a list of words')
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f'"{name}" holds {str(word)[:20]!r}, expected words')
        yield word


def _pairs(given: dict[str, Any], name: str, source: int, target: int) -> Iterator[Link]:
    links = given.get(name, [])
    if not isinstance(links, list):
        raise ValueError(f'expected "{name}", a list of pairs')
    for link in links:
        if not isinstance(link, list) or len(link) != 2 or not all(type(n) is int for n in link):
            raise ValueError(f'"{name}" holds {str(link)[:40]}, expected pairs [source, target]')
        if not (0 <= link[0] < source and 0 <= link[1] < target):
            raise ValueError(
                f'"{name}" links {link}, the sentence has {source} and {target} words, from 0'
            )
        yield link[0], link[1]
