"""Reports and validations of a training: lines of metrics.jsonl, samples.txt, and events for the observer."""

from __future__ import annotations

from dataclasses import asdict

from regard.files import Lock
from regard.translation.runs import Run
from regard.translation.training import checkpoints, metrics, samples
from regard.translation.training.events import Observer, Stepped, Validated
from regard.translation.training.measuring import SlowWatch
from regard.translation.training.progress import Progress
from regard.translation.training.step import Update
from regard.translation.training.validation import Quality


class Reports:
    """Reports of one training.

    Args:
        run: where lines are written; None in all processes but the first.
        lock: on the run folder.
        total: the steps of the budget.
        epochs: the passes of the budget; 0 without `max_epochs`.
        watch: notices a training that is slower than measured.
    """

    def __init__(
        self,
        run: Run | None,
        lock: Lock | None,
        observer: Observer,
        *,
        total: int,
        epochs: int,
        watch: SlowWatch,
    ) -> None:
        self._run, self._lock, self._observer = run, lock, observer
        self._total, self._epochs, self._watch = total, epochs, watch

    def advanced(self, progress: Progress) -> None:
        """A step was made."""
        self._observer.advanced(progress.step, max(self._total, progress.step))

    def stepped(self, progress: Progress, update: Update) -> None:
        """Report the steps since the last report, of which `update` is the last; begin the sums anew."""
        loss, tokens, seconds = progress.since
        progress.since = []
        event = Stepped(
            progress.step,
            progress.epoch,
            loss / max(1, tokens),
            update.rate,
            update.norm,
            tokens / max(1e-9, seconds),
            self._epochs,
        )
        self._write("step", event)
        self._observer.stepped(event, max(self._total, event.step))
        if self._watch.notices(event.tokens_per_second):
            self._observer.note(self._watch.advice(event.step, event.tokens_per_second))

    def validated(self, step: int, quality: Quality, score: float, best: bool) -> None:
        """Report a validation."""
        event = Validated(step, *quality.numbers, score=score, best=best, samples=quality.samples)
        self._write("validation", event)
        if self._run is not None:
            samples.write(self._run, step, quality.samples)
        self._observer.validated(event)

    def _write(self, kind: str, event: Stepped | Validated) -> None:
        if self._run is not None:
            checkpoints.check_folder(self._run, self._lock, event.step)
            line = asdict(event)
            line.pop("samples", None)
            metrics.write(self._run, {"kind": kind, **line})
