"""Progress of long work: a bar in a terminal, lines elsewhere; and the curves of a training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.output import report, streams
from regard.errors import RegardError
from regard.translation.training.reporting import Observer, Stepped, Validated

if TYPE_CHECKING:
    from rich.console import Console

CURVES = "curves.png"


class Reporter(Observer):
    """A bar with loss, speed and time left, and notes above it, on a console that a person watches; without one,
    lines on standard output. Draws the curves of the run in `folder`.
    """

    def __init__(self, folder: Path, console: Console | None = None) -> None:
        from rich.progress import TextColumn

        self.folder, self.console = folder, console
        status = TextColumn("{task.fields[status]}")
        self.bar = report.bar(console, "step", status, speed_estimate_period=600.0)

    def note(self, text: str) -> None:
        if self.console is None:
            report.say(text, flush=True)
        else:
            self.console.print(streams.printable(text), markup=False, highlight=False)

    def doing(self, task: str) -> None:
        if self.console is not None:
            self.note(f"{task} ...")

    def advanced(self, step: int, total: int) -> None:
        if not self.bar.tasks:
            self.bar.add_task("", total=total, completed=step - 1, status="")
        self.bar.update(self.bar.tasks[0].id, completed=step)
        if self.console is not None:
            self.bar.start()

    def stepped(self, event: Stepped, total: int) -> None:
        speed = f"{event.tokens_per_second:,.0f} tokens/s"
        if self.console is not None and self.bar.tasks:
            self.bar.update(self.bar.tasks[0].id, status=f"loss {event.loss:.3f}  {speed}")
        if self.console is not None:
            return
        seconds = self.bar.tasks[0].time_remaining if self.bar.tasks else None
        remaining = "unknown" if seconds is None else str(timedelta(seconds=round(seconds)))
        of = f"/{event.epochs}" if event.epochs else ""
        self.note(
            f"step {event.step}/{total}  pass {event.epoch + 1}{of}  loss {event.loss:.3f}  "
            f"rate {event.learning_rate:.2e}  {speed}  left {remaining}"
        )

    def validated(self, event: Validated) -> None:
        best = "  best so far" if event.best else ""
        self.note(
            f"step {event.step}  validation: loss {event.loss:.3f}  BLEU {event.bleu:.1f}  "
            f"chrF {event.chrf:.1f}  exact {event.exact:.1f}%{best}"
        )
        for sample in event.samples:
            self.note("\n".join(sample.lines()) + "\n")
        self.draw_curves()

    def draw_curves(self) -> None:
        """Draw anew what metrics.jsonl holds, if it holds anything; a picture that fails stops no training."""
        from regard.translation.runs.layout import METRICS
        from regard.viewing import charts, figures

        metrics = self.folder / METRICS
        if not metrics.exists() or metrics.stat().st_size == 0:
            return  # no report yet
        try:
            title = f"{self.folder.resolve().name}: training"
            figure = charts.curves(metrics, title=title)
            figures.save(figure, self.folder / CURVES, dots_per_inch=120)
        except (OSError, RegardError, ValueError) as fault:
            self.note(f"{self.folder / CURVES}: not drawn: {fault}")


@contextmanager
def reporter(folder: Path) -> Iterator[Reporter]:
    """A bar where a person watches, lines where a file does."""
    if sys.stdout is None or not sys.stdout.isatty():
        yield Reporter(folder)
        return
    from rich.console import Console

    watched = Reporter(folder, Console(file=sys.stdout))
    try:
        yield watched
    finally:
        watched.bar.stop()  # leaves the terminal as it was
