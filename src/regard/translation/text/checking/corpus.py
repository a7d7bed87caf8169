"""A check of all splits of a corpus, and of the lines that they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from regard.translation.text.checking.counting import Vocabulary
from regard.translation.text.checking.findings import Findings
from regard.translation.text.checking.repetitions import KINDS
from regard.translation.text.checking.split import SIDES, Split, read_split
from regard.translation.text.corpora import Corpus
from regard.translation.text.tokenizer import Tokenizer


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
