"""Bars of rich that show the progress of work in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")


def bar(console: Console, unit: str, *more: ProgressColumn, **settings: Any) -> Progress:
    """A bar as wide as the terminal: the unit, the numbers, `more`, and the time so far and left."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn(unit),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        *more,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
        **settings,
    )


def tracked(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """The items, with a bar on standard error where that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, what, total, console=Console(stderr=True), transient=True)
