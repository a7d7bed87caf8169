"""The problems found in a corpus, counted by kind, with the first places of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

_EXAMPLES = 3
Level = Literal["error", "warning"]


@dataclass
class Finding:
    """One kind of problem.

    Attributes:
        level: an error would stop a training, a warning would not.
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


class Findings(dict[tuple[Level, str], Finding]):
    """All problems, in the order in which their kinds were first found."""

    def add(self, level: Level, problem: str, *where: str, count: int = 1) -> None:
        """Count one more, or several, with places if there are any."""
        finding = self.setdefault((level, problem), Finding(level, problem))
        finding.count += count
        finding.where += where[: _EXAMPLES - len(finding.where)]

    def add_lines(self, problem: str, name: str, numbers: Sequence[int]) -> None:
        """Warn of lines of one file."""
        if numbers:
            places = (f"{name}:{number}" for number in numbers[:_EXAMPLES])
            self.add("warning", problem, *places, count=len(numbers))

    def of(self, level: Level) -> list[Finding]:
        return [finding for finding in self.values() if finding.level == level]
