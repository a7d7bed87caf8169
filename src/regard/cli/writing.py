"""Commands that write into a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.cli.output import report

if TYPE_CHECKING:
    from regard.translation.runs import Run


@contextmanager
def writing(run: Run) -> Iterator[Run]:
    """`run.locked()`, with a note where no lock can be had."""
    with run.locked() as locked:
        if locked.lock is not None and locked.lock.handle is None:
            report.note(
                f"{run.folder}: its file system has no locks: "
                "let no other command write there until this one ends"
            )
        yield locked
