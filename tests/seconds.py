"""What each test takes, in seconds of processor time, which other work on the machine changes little.

`pytest --seconds FILE` adds a line to FILE for each test: its seconds, a tab and its name. They are those of the test,
of its fixtures and of the processes that it waited for; `.ci/durations` lists the longest. With `-n` as well.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


def used() -> float:
    """The processor time of this process and of the children that it has waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Seconds:
    """The plugin: a worker notes the time in its reports, and the process that prints them adds it up."""

    def __init__(self, path: Path, is_worker: bool) -> None:
        self.path, self.is_worker = path, is_worker
        self.total: Counter[str] = Counter()
        self.before = used()

    def pytest_collection_finish(self) -> None:
        self.before = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = used()
        report.processor_seconds, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.total[report.nodeid] += getattr(
            report, "processor_seconds", 0
        )  # of a worker that died: none

    def pytest_sessionfinish(self) -> None:
        if not self.is_worker:
            lines = (f"{seconds:.3f}\t{name}\n" for name, seconds in self.total.items())
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
