"""Output of commands: lines, tables and progress bars for people, JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

from regard.cli.output import streams

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")
# Seconds between two lines that say how far the work is.
_EVERY = 15.0

Format = Literal["text", "json"]


def as_json(value: Any, *, indent: int | None = 1) -> str:
    """One JSON text. NaN and infinite numbers become null."""
    text = json.dumps(_plain(value), ensure_ascii=False, indent=indent, allow_nan=False)
    return streams.printable(text)


def table(rows: Iterable[Sequence[str | float]]) -> str:
    """A table: the first column is aligned to the left, the others to the right; numbers with commas.

    >>> print(table([["", "AER"], ["head 0", "47.4"], ["mean", 9000]]))
             AER
    head 0  47.4
    mean   9,000
    """
    texts = [[cell if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    first_width, *widths = (max(map(len, column)) for column in zip(*texts, strict=True))
    return "\n".join(
        " ".join([row[0].ljust(first_width), *map(str.rjust, row[1:], widths)]).rstrip()
        for row in texts
    )


def say(text: str, *, flush: bool = False, file: TextIO | None = None) -> None:
    """Print lines for people, on standard output unless `file` is given; `flush` flushes the stream."""
    print(streams.printable(text), file=file, flush=flush)


def note(text: str) -> None:
    if sys.stderr is not None:
        say(f"note: {text}", file=sys.stderr)


class _Notes(logging.Handler):
    """Prints what the library logs as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_logged() -> None:
    """Show what the library logs: that machine code is being compiled."""
    logger = logging.getLogger("regard")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())
        logger.setLevel(logging.INFO)


def bar(console: Console | None, unit: str, *more: ProgressColumn, **settings: Any) -> Progress:
    """A bar as wide as the terminal: the unit, the numbers, `more`, and the time so far and left."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn(unit),
        progress.MofNCompleteColumn(),
        progress.BarColumn(bar_width=None),
        *more,
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=console,
        expand=True,
        **settings,
    )


def tracked(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """The items, with a bar on standard error where that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description, total, console=Console(stderr=True), transient=True)


@contextmanager
def counted(unit: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Shows on standard error how much is done: a bar in a terminal; elsewhere a line now and then.

    Yields a function to call with the number of units done, and text for the line.
    """
    if sys.stderr is None:
        yield lambda done, note="": None
        return
    from rich.console import Console

    watched, reported = sys.stderr.isatty(), time.monotonic()
    of = "" if total is None else f" of {total:,}"
    progress = bar(Console(stderr=True), unit, transient=True)

    def show(done: int, note: str = "") -> None:
        nonlocal reported
        if not progress.tasks:
            progress.add_task("", total=total, completed=done)
        progress.update(progress.tasks[0].id, completed=done)
        if not watched and time.monotonic() - reported >= _EVERY:
            reported, speed = time.monotonic(), progress.tasks[0].speed
            fast = f", {speed:.1f} {unit}/s" if speed else ""  # the first reports tell none
            say(f"{done:,}{of} {unit}{note}{fast}", file=sys.stderr, flush=True)

    with progress if watched else nullcontext():
        yield show


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not -1e300 < value < 1e300:
        return None
    return value
