"""A check of all splits of a corpus, each read once line by line, and of the lines that they share."""

import re
import unicodedata
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from regard.errors import DataError
from regard.translation.text.checking import remains
from regard.translation.text.checking.counting import Findings, Lengths, Vocabulary
from regard.translation.text.checking.repetitions import KINDS, Prints
from regard.translation.text.corpora import BOM, Corpus, Pair, Parallel, Tsv, open_text, raw_lines
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import Tokenizer

# Stands for a line that is not UTF-8; valid UTF-8 never decodes to it.
_UNREAD = "\ud800"
SIDES = ("source", "target")
# Bytes by which the format of a file is known.
_HEAD = 4096
# The ratio of pairs with fewer characters is not checked.
_SHORT = 20


class Split:
    """The counts of one split; each line takes 64 bytes of memory, for any length.

    Attributes:
        name: its file, or "A and B" for two files.
        files: their paths.
        lines: lines of the file, or of the longer of two files.
        empty: lines with an empty side.
        words, characters, pieces: the lengths by side ("source", "target"); no pieces without a tokenizer.
        unread: whether there is nothing that could be read.
        outliers: pairs whose lengths in characters are out of proportion.
    """

    def __init__(self, files: list[str]) -> None:
        self.name, self.files = " and ".join(files), files
        self.lines = self.empty = self.outliers = 0
        self.unread = False
        self.words = {side: Lengths() for side in SIDES}
        self.characters = {side: Lengths() for side in SIDES}
        self.pieces: dict[str, Lengths] = {}
        self.prints = Prints()
        self._longs = {side: array("I") for side in SIDES}

    @property
    def pairs(self) -> int:
        return len(self.prints.lines)

    def add(self, number: int, pair: Pair, vocabularies: Mapping[str, Vocabulary]) -> None:
        """Count a pair with text on both sides."""
        self.prints.add(number, pair)
        for side, text in zip(SIDES, pair[:2], strict=True):
            self._longs[side].append(len(text))
            self.words[side][text.count(" ") + 1] += 1
            self.characters[side][len(text)] += 1
            if side in vocabularies:
                self.pieces.setdefault(side, Lengths())[vocabularies[side].add(text)] += 1

    def find_outliers(self, ratio: float, findings: Findings) -> None:
        """Count the pairs that are out of proportion."""
        source, target = (np.array(self._longs[side], dtype=np.float64) for side in SIDES)
        # Languages differ in length, so each pair is compared with the proportion of the whole corpus.
        relative = (source / target) / (source.sum() / max(1, target.sum()))
        far = (np.maximum(relative, 1 / relative) > ratio) & (np.maximum(source, target) >= _SHORT)
        numbers = np.array(self.prints.lines)[far].tolist()
        self.outliers = len(numbers)
        problem = f"lengths more than {ratio:g} times out of proportion"
        findings.add_lines(problem, self.files[0], numbers)

    def as_object(self) -> dict[str, Any]:
        units = {"words": self.words, "characters": self.characters, "pieces": self.pieces}
        return {
            "name": self.name,
            "lines": self.lines,
            "pairs": self.pairs,
            "empty": self.empty,
            "repeated": {kind: len(self.prints.repeated(kind)) for kind in KINDS},
            "outliers": self.outliers,
            "lengths": {
                side: {unit: own[side].summary() for unit, own in units.items() if side in own}
                for side in SIDES
            },
        }


def read_split(
    corpus: Corpus, findings: Findings, vocabularies: Mapping[str, Vocabulary], ratio: float
) -> Split:
    """Read a split: add problems to `findings`, and count the pieces of its lines in `vocabularies` by side.

    A pair is an outlier when its ratio of characters is `ratio` times that of the corpus. Corpora that are no lines
    have units, which are numbered from 1 as lines are.
    """
    files = corpus.paths
    split = Split([str(file) for file in files])
    name = split.files[0]
    forms: set[str] = set()
    broken: set[Path] = set()
    counts = [0] * (1 if isinstance(corpus, Tsv) else 2)
    rows: Iterable[tuple[Any, ...]]
    if isinstance(corpus, Tsv | Parallel):
        rows = zip_longest(*(_lines(path, findings, forms, broken) for path in files))
    else:
        rows = _units(corpus, findings, forms, broken)
    for number, row in enumerate(rows, start=1):
        split.lines = number
        counts = [n if line is None else number for n, line in zip(counts, row, strict=True)]
        if _UNREAD in row or None in row:
            continue
        sides = corpus.columns(row[0]) if isinstance(corpus, Tsv) else row
        if sides is None:
            too_few = f"fewer than {cast(Tsv, corpus).width} tab-separated columns"
            commas = ", and commas or semicolons: export it with tabs"
            separated = "\t" not in row[0] and re.search("[,;]", row[0])
            findings.add("error", too_few + commas * bool(separated), f"{name}:{number}")
            continue
        pair = Pair(normalise(sides[0]), normalise(sides[1]))
        if number == 1 and remains.is_header(*pair[:2]):
            findings.add("warning", remains.HEADER, f"{name}:1")
        if pair.source and pair.target:
            split.add(number, pair, vocabularies)
            continue
        split.empty += 1
        empty = "source" if pair.target else "target"
        problem = f"empty {empty}" if any(pair[:2]) else "both sides empty"
        findings.add("warning", problem, f"{name}:{number}")
    if len(set(counts)) > 1 and not broken:
        findings.add("error", f"{files[0]} has {counts[0]} lines and {files[1]} has {counts[1]}")
    split.unread = bool(broken) and not split.lines
    if not split.pairs and not broken:
        findings.add("error", f"{split.name}: no usable sentence pairs in {split.lines} lines")
    if len(forms) > 1:
        findings.add("warning", "composed (NFC) and decomposed (NFD) characters mixed", split.name)
    split.find_outliers(ratio, findings)
    findings.add_lines("pair that an earlier line equals", name, split.prints.repeated("pairs"))
    return split


def _lines(path: Path, findings: Findings, forms: set[str], broken: set[Path]) -> Iterator[str]:
    """The lines of a file. Damage is reported as an error; a file without a readable end is added to `broken`."""
    try:
        with open_text(path) as file:
            kind = remains.of_text(_head(file))
            if kind is not None:
                raise DataError(
                    f"{path}: is {kind}, not text with one sentence a line: extract its sentences first, "
                    "into a table of tab-separated columns or two files"
                )
            for number, raw in enumerate(raw_lines(file, str(path)), start=1):
                where = f"{path}:{number}"
                if number == 1 and b"\r" in raw.rstrip(b"\r\n") and not raw.endswith(b"\n"):
                    raise DataError(
                        f"{path}: its lines end with a carriage return alone: convert it with `tr '\\r' '\\n'`"
                    )
                if number == 1 and raw.startswith(BOM):
                    findings.add("warning", f"{remains.BOM} at the start", f"{where}:1")
                    raw = raw.removeprefix(BOM)
                try:
                    text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
                except UnicodeDecodeError as fault:
                    findings.add("error", "not UTF-8", f"{where}:{fault.start + 1}")
                    yield _UNREAD
                    continue
                _check_text(text, where, findings, forms)
                yield text
    except DataError as fault:
        findings.add("error", str(fault))
        broken.add(path)


def _units(
    corpus: Corpus, findings: Findings, forms: set[str], broken: set[Path]
) -> Iterator[tuple[str, str]]:
    """The rows of a corpus that is no lines, checked as `_lines` checks them."""
    try:
        for number, row in enumerate(corpus.rows(), start=1):
            for text in row:
                _check_text(text, f"{corpus.paths[0]}:{number}", findings, forms)
            yield row
    except DataError as fault:
        findings.add("error", str(fault))
        broken |= set(corpus.paths)


def _check_text(text: str, where: str, findings: Findings, forms: set[str]) -> None:
    """Report what a text should not hold, and note which normal forms it has."""
    for kind, place in remains.of_line(text):
        if kind == remains.NOT_NFC:
            forms.add("decomposed")
        findings.add("warning", kind, f"{where}:{len(text[:place].encode()) + 1}")
    if not unicodedata.is_normalized("NFD", text):
        forms.add("composed")


def _head(file: BinaryIO) -> bytes:
    """The first bytes of a file, which are read again; none of one that is damaged."""
    with suppress(EOFError, OSError, zlib.error):
        return cast(bytes, file.peek(_HEAD))[:_HEAD]  # type: ignore[attr-defined]
    return b""


@dataclass(frozen=True)
class Overlap:
    """How many lines of a later split are in an earlier one, by "pairs", "sources", "targets".

    Attributes:
        exact: lines that are equal, character by character.
        folded: lines that are equal apart from case and punctuation.
    """

    earlier: str
    later: str
    exact: dict[str, int]
    folded: dict[str, int]


@dataclass(frozen=True)
class Report:
    """The results of a check."""

    splits: list[Split]
    overlaps: list[Overlap]
    vocabularies: dict[str, Vocabulary]
    findings: Findings

    def as_object(self) -> dict[str, Any]:
        return {
            "splits": [split.as_object() for split in self.splits],
            "overlaps": [vars(overlap) for overlap in self.overlaps],
            "vocabulary": {side: each.summary() for side, each in self.vocabularies.items()},
            "errors": [vars(finding) for finding in self.findings.of("error")],
            "warnings": [vars(finding) for finding in self.findings.of("warning")],
        }


def check(
    corpora: Sequence[Corpus],
    *,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    ratio: float = 3.0,
) -> Report:
    """Check each split of a corpus, the training set first, then the lines that splits share.

    Args:
        tokenizers: of source and target, for the report on the vocabulary.
        ratio: see `read_split`.
    """
    findings = Findings()
    sides = zip(SIDES, tokenizers or (), strict=False)
    vocabularies = {side: Vocabulary(tokenizer) for side, tokenizer in sides}
    splits = [read_split(corpus, findings, vocabularies, ratio) for corpus in corpora]
    overlaps = [_overlap(*two, findings) for two in combinations(splits, 2)]
    return Report(splits, overlaps, vocabularies, findings)


def _overlap(earlier: Split, later: Split, findings: Findings) -> Overlap:
    exact, folded = {}, {}
    for kind in KINDS:
        same = later.prints.shared(earlier.prints, kind, fold=False)
        alike = later.prints.shared(earlier.prints, kind, fold=True)
        exact[kind], folded[kind] = len(same), len(alike)
        description = f"{kind[:-1]} that is in {earlier.name}"
        findings.add_lines(f"{description}, too", later.files[0], same)
        near = sorted(set(alike) - set(same))
        findings.add_lines(f"{description} but for case and punctuation", later.files[0], near)
    return Overlap(earlier.name, later.name, exact, folded)
