"""Progress of long work: a bar in a terminal, lines elsewhere; and the curves of a training."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    """Lines of plain text on standard output; draws the curves of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: tuple[float, int] | None = None

    def note(self, text: str) -> None:
        report.say(text, now=True)

    def advanced(self, step: int, total: int) -> None:
        if self._started is None:
            self._started = (time.monotonic(), step - 1)

    def stepped(self, event: Stepped, total: int) -> None:
        of = f"/{event.epochs}" if event.epochs else ""
        self.note(
            f"step {event.step}/{total}  pass {event.epoch + 1}{of}  loss {event.loss:.3f}  "
            f"rate {event.learning_rate:.2e}  {event.tokens_per_second:,.0f} tokens/s  "
            f"left {self._left(event.step, total)}"
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
        from regard.viewing import curves, figures

        metrics = self.folder / METRICS
        if not metrics.exists() or metrics.stat().st_size == 0:
            return  # no report yet
        try:
            title = f"{self.folder.resolve().name}: training"
            drawn = curves.draw(metrics, title=title)
            figures.save(drawn, self.folder / CURVES, dots_per_inch=120)
        except (OSError, RegardError, ValueError) as fault:
            self.note(f"{self.folder / CURVES}: not drawn: {fault}")

    def _left(self, step: int, total: int) -> str:
        if self._started is None:
            return "unknown"
        began, first = self._started
        seconds = (time.monotonic() - began) / max(1, step - first) * (total - step)
        return str(timedelta(seconds=round(max(0, seconds))))


class Bar(Reporter):
    """A progress bar with loss, speed and time left; notes are printed above it."""

    def __init__(self, folder: Path, console: Console) -> None:
        from rich.progress import TextColumn

        super().__init__(folder)
        said = TextColumn("{task.fields[said]}")
        self._progress = report.bar(console, "step", said, speed_estimate_period=120.0)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def note(self, text: str) -> None:
        self._progress.console.print(streams.printable(text), markup=False, highlight=False)

    def advanced(self, step: int, total: int) -> None:
        super().advanced(step, total)
        if not self._progress.tasks:
            self._progress.add_task("", total=total, completed=step - 1, said="")
            self._progress.start()
        self._progress.update(self._progress.tasks[0].id, completed=step)

    def stepped(self, event: Stepped, total: int) -> None:
        if self._progress.tasks:
            said = f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} tokens/s"
            self._progress.update(self._progress.tasks[0].id, said=said)


@contextmanager
def reporter(folder: Path) -> Iterator[Reporter]:
    """A bar where a person watches, lines where a file does."""
    if sys.stdout is None or not sys.stdout.isatty():
        yield Reporter(folder)
        return
    from rich.console import Console

    with closing(Bar(folder, Console(file=sys.stdout))) as bar:
        yield bar
