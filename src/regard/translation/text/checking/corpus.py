"""A check of all splits of a corpus, and of the lines that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from regard.translation.text.checking.findings import Findings
from regard.translation.text.checking.repetitions import KINDS
from regard.translation.text.checking.split import SIDES, Split, read_split
from regard.translation.text.checking.vocabulary import Vocabulary
from regard.translation.text.corpora import Corpus
from regard.translation.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Overlap:
    """The lines of a later split that are in an earlier one, by "pairs", "sources", "targets".

    Attributes:
        earlier: the name of the earlier split, usually the training set.
        later: the name of the later split, usually a test set.
        exact: the number of lines that are equal, character by character.
        folded: the number of lines that are equal apart from case and punctuation.
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
        """The report as an object for JSON."""
        return {
            "splits": [_split(split) for split in self.splits],
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
    """Check each split of a corpus, then the lines that splits share.

    Args:
        corpora: its splits, the training set first.
        tokenizers: of source and target, for the report on the vocabulary.
        ratio: see `read_split`.
    """
    findings = Findings()
    vocabularies: dict[str, Vocabulary] = {}
    if tokenizers is not None:
        vocabularies = {side: Vocabulary(t) for side, t in zip(SIDES, tokenizers, strict=True)}
    splits = [
        read_split(corpus, findings, vocabularies=vocabularies or None, ratio=ratio)
        for corpus in corpora
    ]
    overlaps = [
        _overlap(splits[a], splits[b], findings) for a, b in combinations(range(len(splits)), 2)
    ]
    return Report(splits, overlaps, vocabularies, findings)


def _overlap(earlier: Split, later: Split, findings: Findings) -> Overlap:
    exact, folded = {}, {}
    for kind in KINDS:
        same = later.prints.shared(earlier.prints, kind, fold=False)
        alike = later.prints.shared(earlier.prints, kind, fold=True)
        exact[kind], folded[kind] = len(same), len(alike)
        what = f"{kind[:-1]} that is in {earlier.name}, too"
        findings.add_lines("warning", what, later.files[0], same)
        if len(alike) > len(same):
            what = f"{kind[:-1]} that is in {earlier.name} but for case and punctuation"
            known = set(same)
            findings.add_lines(
                "warning", what, later.files[0], [n for n in alike if n not in known]
            )
    return Overlap(earlier.name, later.name, exact, folded)


def _split(split: Split) -> dict[str, Any]:
    return {
        "name": split.name,
        "lines": split.lines,
        "pairs": split.pairs,
        "empty": split.empty,
        "repeated": {kind: len(split.prints.repeated(kind)) for kind in KINDS},
        "outliers": split.outliers,
        "lengths": {
            side: {
                unit: lengths[side].summary()
                for unit, lengths in (
                    ("words", split.words),
                    ("characters", split.characters),
                    ("pieces", split.pieces),
                )
                if side in lengths
            }
            for side in SIDES
        },
    }
