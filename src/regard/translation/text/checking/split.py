"""One split of a corpus, read once line by line: counts and findings."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.translation.text.checking import characters
from regard.translation.text.checking.findings import Findings
from regard.translation.text.checking.lengths import Lengths
from regard.translation.text.checking.repetitions import Prints
from regard.translation.text.checking.vocabulary import Vocabulary
from regard.translation.text.corpora import BOM, Corpus, Pair, Tsv, opened, raw_lines
from regard.translation.text.normalisation import normalise

# Stands for a line that is not UTF-8; valid UTF-8 never decodes to it.
_UNREAD = "\ud800"
SIDES = ("source", "target")
# The ratio of pairs with fewer characters is not checked.
_SHORT = 20


@dataclass
class Split:
    """The counts of one split.

    Attributes:
        name: its file, or "A and B" for two files.
        files: their paths.
        lines: lines of the file, or of the longer of two files.
        pairs: pairs with text on both sides.
        empty: lines with an empty side.
        words: the lengths in words, by side ("source", "target").
        characters: the lengths in characters, by side.
        pieces: the lengths in pieces, by side; empty without a tokenizer.
        prints: hashes of the lines.
        outliers: pairs whose lengths in characters are out of proportion.
    """

    name: str
    files: list[str] = field(default_factory=list)
    lines: int = 0
    pairs: int = 0
    empty: int = 0
    words: dict[str, Lengths] = field(default_factory=lambda: {side: Lengths() for side in SIDES})
    characters: dict[str, Lengths] = field(
        default_factory=lambda: {side: Lengths() for side in SIDES}
    )
    pieces: dict[str, Lengths] = field(default_factory=dict)
    prints: Prints = field(default_factory=Prints)
    outliers: int = 0


def read_split(
    corpus: Corpus,
    findings: Findings,
    *,
    vocabularies: dict[str, Vocabulary] | None = None,
    ratio: float = 3.0,
) -> Split:
    """Read a split and count. Each line takes 64 bytes of memory, for any length.

    Args:
        corpus: a table or two files.
        findings: problems are added to it.
        vocabularies: by side; the pieces of the lines are counted in them.
        ratio: a pair is an outlier when its ratio of characters is this many times that of the corpus.
    """
    files = [corpus.path] if isinstance(corpus, Tsv) else [corpus.source, corpus.target]
    split = Split(" and ".join(map(str, files)), [str(file) for file in files])
    forms: set[str] = set()
    lengths = array("I"), array("I")
    broken: set[Path] = set()
    readers = [_lines(path, findings, forms, broken) for path in files]
    counts = [0] * len(files)
    for number, row in enumerate(zip_longest(*readers), start=1):
        split.lines = number
        counts = [n if line is None else number for n, line in zip(counts, row, strict=True)]
        if _UNREAD in row:
            continue
        sides = _sides(corpus, number, row, findings)
        if sides is None:
            continue
        pair = Pair(normalise(sides[0]), normalise(sides[1]))
        if not pair.source or not pair.target:
            split.empty += 1
            empty = [name for name, text in zip(SIDES, pair[:2], strict=True) if not text]
            what = "both sides empty" if len(empty) == 2 else f"empty {empty[0]}"
            findings.add("warning", what, f"{files[0]}:{number}")
            continue
        _count(split, number, pair, vocabularies)
        for side, text in zip(lengths, pair[:2], strict=True):
            side.append(len(text))
    if len(set(counts)) > 1 and not broken:
        findings.add("error", f"{files[0]} has {counts[0]} lines and {files[1]} has {counts[1]}")
    if not split.pairs and not broken:
        findings.add("error", f"{split.name}: no usable sentence pairs in {split.lines} lines")
    if len(forms) > 1:
        findings.add("warning", "composed (NFC) and decomposed (NFD) characters mixed", split.name)
    _find_outliers(split, lengths, ratio, str(files[0]), findings)
    findings.add_lines(
        "warning", "pair that an earlier line equals", str(files[0]), split.prints.repeated("pairs")
    )
    return split


def _count(
    split: Split, number: int, pair: Pair, vocabularies: dict[str, Vocabulary] | None
) -> None:
    split.pairs += 1
    split.prints.add(number, pair)
    for side, text in zip(SIDES, pair[:2], strict=True):
        split.words[side].add(text.count(" ") + 1)
        split.characters[side].add(len(text))
        if vocabularies is not None:
            split.pieces.setdefault(side, Lengths()).add(vocabularies[side].add(text))


def _lines(
    path: Path, findings: Findings, forms: set[str], broken: set[Path]
) -> Iterator[str | None]:
    """The lines of a file. Damage is reported as an error; a file without a readable end is added to `broken`."""
    try:
        with opened(path) as file:
            for number, raw in enumerate(raw_lines(file, str(path)), start=1):
                if number == 1 and raw.startswith(BOM):
                    findings.add("warning", f"{characters.BOM} at the start", f"{path}:1:1")
                    raw = raw.removeprefix(BOM)
                yield _decoded(raw, f"{path}:{number}", findings, forms)
    except DataError as fault:
        findings.add("error", str(fault))
        broken.add(path)


def _decoded(raw: bytes, where: str, findings: Findings, forms: set[str]) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        findings.add("error", "not UTF-8", f"{where}:{fault.start + 1}")
        return _UNREAD
    if not text.isascii() or not text.isprintable():
        for kind, place in characters.troubles(text):
            if kind == characters.NOT_NFC:
                forms.add("decomposed")
            findings.add("warning", kind, f"{where}:{len(text[:place].encode()) + 1}")
        if characters.precomposed(text):
            forms.add("composed")
    return text


def _sides(
    corpus: Corpus, number: int, row: tuple[str | None, ...], findings: Findings
) -> tuple[str, str] | None:
    if not isinstance(corpus, Tsv):
        source, target = row
        return None if source is None or target is None else (source, target)
    line = row[0] or ""
    if not line.strip():
        return "", ""
    columns = line.split("\t")
    needed = max(corpus.source_column, corpus.target_column) + 1
    if len(columns) < needed:
        what = f"fewer than {needed} tab-separated columns"
        findings.add("error", what, f"{corpus.path}:{number}")
        return None
    return columns[corpus.source_column], columns[corpus.target_column]


def _find_outliers(
    split: Split,
    lengths: tuple[array[int], array[int]],
    ratio: float,
    name: str,
    findings: Findings,
) -> None:
    if not split.pairs:
        return
    source, target = (np.frombuffer(side, dtype=np.uint32).astype(np.float64) for side in lengths)
    # Languages differ in length, so each pair is compared with the proportion of the whole corpus.
    relative = (source / target) / (source.sum() / target.sum())
    far = (np.maximum(relative, 1 / relative) > ratio) & (np.maximum(source, target) >= _SHORT)
    numbers = [split.prints.lines[int(place)] for place in np.flatnonzero(far)]
    split.outliers = len(numbers)
    what = f"lengths more than {ratio:g} times out of proportion"
    findings.add_lines("warning", what, name, numbers)
