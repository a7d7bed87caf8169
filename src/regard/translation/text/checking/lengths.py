"""The lengths of sentences as a table of counts, exact and small for any corpus."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Lengths:
    """The number of sentences of each length.

    >>> lengths = Lengths()
    >>> for length in (1, 2, 2, 9): lengths.add(length)
    >>> lengths.mean, lengths.share(0.5), lengths.longest
    (3.5, 2, 9)
    """

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, length: int) -> None:
        """Count one sentence."""
        self.counts[length] += 1

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return self.counts.total()

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return sum(length * count for length, count in self.counts.items())

    @property
    def mean(self) -> float:
        """The mean length; 0 without sentences."""
        return self.total / self.sentences if self.counts else 0.0

    @property
    def longest(self) -> int:
        """The largest length; 0 without sentences."""
        return max(self.counts, default=0)

    def share(self, part: float) -> int:
        """The smallest length that at least this part of the sentences does not exceed."""
        wanted, seen = part * self.sentences, 0
        for length in sorted(self.counts):
            seen += self.counts[length]
            if seen >= wanted:
                return length
        return 0

    def summary(self) -> dict[str, float | int]:
        """Total, mean, median, 95th and 99th percentile, and the longest."""
        return {
            "total": self.total,
            "mean": round(self.mean, 2),
            "median": self.share(0.5),
            "p95": self.share(0.95),
            "p99": self.share(0.99),
            "longest": self.longest,
        }
