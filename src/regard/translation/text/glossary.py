"""Terms that a translation must write as a list has them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.translation.text.corpora import decoded_lines, open_text
from regard.translation.text.normalisation import normalise

# Terms of a glossary, and characters of a term, at most.
_MOST, _LONGEST = 100_000, 200
# Words with their combining marks, white space, and single marks.
_TOKEN = re.compile(r"[\w\u0300-\u036f]+|\s+|[^\w\s]")
KEEP, _ANY = "=", "*"


class Term(NamedTuple):
    """A term of a glossary.

    Attributes:
        source: as sources have it. A `*` at the end of a word stands for any more letters; without capitals, capitals
            of a source make no difference.
        target: as translations must have it; "=" for as the source writes it.
        place: the line or the number of the term, from 1.
    """

    source: str
    target: str
    place: int

    def specificity(self) -> tuple[bool, int]:
        """Of two terms for the same words, the larger is used: that with capitals, or with more letters."""
        letters = -self.source.count(_ANY) * _LONGEST + len(self.source)
        return self.source != self.source.lower(), letters


@dataclass
class _Node:
    """A tree of terms, a word deeper at each step; `beginnings` are those of words with a `*`."""

    words: dict[str, _Node] = field(default_factory=dict)
    beginnings: dict[str, _Node] = field(default_factory=dict)
    term: Term | None = None

    def terms(self, words: Sequence[str], place: int) -> Iterator[tuple[int, Term]]:
        """The terms that begin at a place of a text, and where each ends."""
        if self.term is not None:
            yield place, self.term
        if place == len(words):
            return
        word = words[place]
        nodes = [self.words.get(word)]
        if self.beginnings:
            sizes = range(1, min(len(word), _LONGEST) + 1)
            nodes += (self.beginnings.get(word[:size]) for size in sizes)
        for node in nodes:
            if node is not None:
                yield from node.terms(words, place + 1)


class Match(NamedTuple):
    """The characters of a line that are a term."""

    start: int
    stop: int
    term: Term


class Glossary:
    """Terms, in their order. `Term` has the rules by which they match.

    >>> glossary = Glossary({"red* social*": "social network", "Regard": "="})
    >>> [match.term.target for match in glossary.matches("Las Redes sociales de Regard")[0]]
    ['social network', '=']

    Attributes:
        terms: those of different sources.
    """

    def __init__(self, terms: Mapping[str, str] | Iterable[Term], name: str = "glossary") -> None:
        """
        Args:
            terms: the target of each source, or terms.
            name: of the list, in errors.

        Raises:
            DataError: an empty side, a `*` in a wrong place, a source with two targets, or too many terms.
        """
        if isinstance(terms, Mapping):
            pairs = enumerate(terms.items(), start=1)
            terms = [Term(source, target, place) for place, (source, target) in pairs]
        self._folded, self._exact = _Node(), _Node()
        self.terms: list[Term] = []
        for term in terms:
            if len(self.terms) == _MOST:
                raise DataError(f"{name}:{term.place}: more than {_MOST:,} terms: use fewer")
            self._add(Term(normalise(term.source), normalise(term.target), term.place), name)

    @classmethod
    def of(cls, glossary: Glossary | Mapping[str, str] | None) -> Glossary | None:
        return cls(glossary) if isinstance(glossary, Mapping) else glossary

    @classmethod
    def open(cls, path: str | Path) -> Glossary:
        """The terms of a file, plain or gzip: a line is a source, a tab and a target.

        Raises:
            DataError: the file cannot be read, or a line is no term. Names the line.
        """
        path = Path(path)
        with open_text(path) as file:
            glossary = cls(_terms(decoded_lines(file, str(path)), str(path)), str(path))
        if not glossary.terms:
            raise DataError(f"{path}: no terms: write a source, a tab and a target on a line")
        return glossary

    @classmethod
    def parsed(cls, text: str, name: str) -> Glossary:
        """The terms of a text, as of a file. Raises `DataError`."""
        return cls(_terms(text.splitlines(), name), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glossary) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms))

    def _add(self, term: Term, name: str) -> None:
        line = f"{name}:{term.place}"
        for side, text in (("source", term.source), ("target", term.target)):
            if not text:
                raise DataError(f"{line}: the {side} is empty: write a word, or delete the term")
            if len(text) > _LONGEST:
                raise DataError(f"{line}: the {side} has more than {_LONGEST} characters")
        node = self._folded if term.source == term.source.lower() else self._exact
        words = _TOKEN.findall(term.source)
        for previous, word, following in zip([" ", *words], words, [*words[1:], " "], strict=False):
            if word != _ANY:
                nodes = node.beginnings if following == _ANY else node.words
                node = nodes.setdefault(word, _Node())
            elif not previous[0].isalnum() or following != " ":
                raise DataError(f"{line}: {term.source!r}: a * stands at the end of a word only")
        if node.term is None:
            node.term = term
            self.terms.append(term)
        elif node.term.target != term.target:
            raise DataError(
                f"{line}: {term.source!r} is {term.target!r} here and {node.term.target!r} in "
                f"{name}:{node.term.place}: delete one of them"
            )

    def matches(self, line: str) -> tuple[list[Match], list[str]]:
        """The terms of a line, in their order, and those that overlap longer ones, which are used in their places."""
        tokens = list(_TOKEN.finditer(line))
        words = [
            " " if token[0].isspace() else unicodedata.normalize("NFC", token[0])
            for token in tokens
        ]
        small = list(map(str.lower, words))
        candidates = [
            Match(tokens[start].start(), tokens[stop - 1].end(), term)
            for start in range(len(tokens))
            for node, read in ((self._exact, words), (self._folded, small))
            for stop, term in node.terms(read, start)
        ]
        candidates.sort(key=lambda match: match.term.specificity(), reverse=True)
        candidates.sort(key=lambda match: (match.start - match.stop, match.start))
        matches: dict[tuple[int, int], Match] = {}
        occupied, overlapping = bytearray(len(line)), list[str]()
        for match in candidates:
            place = match.start, match.stop
            if place in matches:
                continue
            if any(occupied[match.start : match.stop]):
                overlapping.append(match.term.source)
            else:
                matches[place] = match
                occupied[match.start : match.stop] = b"\1" * (match.stop - match.start)
        return sorted(matches.values()), list(dict.fromkeys(overlapping))


def _terms(lines: Iterable[str], name: str) -> Iterator[Term]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        columns = line.split("\t")
        if len(columns) != 2:
            raise DataError(
                f"{name}:{number}: {len(columns)} columns, expected 2: a source, a tab and a target"
            )
        yield Term(columns[0], columns[1], number)
