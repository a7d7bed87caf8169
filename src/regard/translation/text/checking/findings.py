"""The problems found in a corpus, counted by kind, with the first places of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

_EXAMPLES = 3
Level = Literal["error", "warning"]


@dataclass
class Finding:
    """One kind of problem.

    Attributes:
        level: an error would stop a training, a warning would not.
        what: a description of the kind.
        count: the number of times it was found.
        where: the first places, "file:line" or "file:line:byte".
    """

    level: Level
    what: str
    count: int = 0
    where: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = self.where and self.count > len(self.where)
        places = ", ".join([*self.where, *(["..."] if more else [])])
        count = f" ({self.count:,})" if self.count > 1 else ""
        return f"{self.level}: {self.what}{count}" + (f": {places}" if places else "")


@dataclass
class Findings:
    """All problems, in the order in which their kinds were first found."""

    by_kind: dict[tuple[Level, str], Finding] = field(default_factory=dict)

    def add(self, level: Level, what: str, where: str = "", count: int = 1) -> None:
        """Count one more, or several."""
        finding = self.by_kind.setdefault((level, what), Finding(level, what))
        finding.count += count
        if where and len(finding.where) < _EXAMPLES:
            finding.where.append(where)

    def add_lines(self, level: Level, what: str, name: str, numbers: list[int]) -> None:
        """Count lines of one file."""
        for number in numbers[:_EXAMPLES]:
            self.add(level, what, f"{name}:{number}")
        if len(numbers) > _EXAMPLES:
            self.add(level, what, count=len(numbers) - _EXAMPLES)

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [finding for finding in self.by_kind.values() if finding.level == level]
