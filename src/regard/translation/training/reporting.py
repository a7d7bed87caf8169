"""Reports and validations of a training: lines of metrics.jsonl, samples.txt, and events for the observer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from regard import files
from regard.errors import TrainingError
from regard.files import Lock
from regard.translation.runs import METRICS, Run
from regard.translation.training import checkpoints, samples
from regard.translation.training.events import Observer, Stepped, Validated
from regard.translation.training.measuring import SlowWatch
from regard.translation.training.progress import Progress
from regard.translation.training.step import Update
from regard.translation.training.validation import Quality


@dataclass(frozen=True)
class Reports:
    """Writes and passes on the reports of one training."""

    run: Run | None  # None in all processes but the first, which alone writes
    lock: Lock | None  # on the run folder
    observer: Observer
    total: int  # the steps of the budget
    epochs: int  # the passes of the budget; 0 without `max_epochs`
    watch: SlowWatch

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
            self.epochs,
        )
        self._write("step", event)
        self.observer.stepped(event, max(self.total, event.step))
        if self.watch.notices(event.tokens_per_second):
            self.observer.note(self.watch.advice(event.step, event.tokens_per_second))

    def validated(self, step: int, quality: Quality, score: float, best: bool) -> None:
        """Report a validation."""
        event = Validated(step, *quality.numbers, score=score, best=best, samples=quality.samples)
        self._write("validation", event)
        if self.run is not None:
            samples.write(self.run, step, quality.samples)
        self.observer.validated(event)

    def _write(self, kind: str, event: Stepped | Validated) -> None:
        if self.run is not None:
            checkpoints.check_folder(self.run, self.lock, event.step)
            line = asdict(event)
            line.pop("samples", None)
            path = self.run.folder / METRICS
            try:
                files.append(path, (json.dumps({"kind": kind, **line}) + "\n").encode())
            except OSError as fault:
                raise TrainingError(f"{path}: cannot be written: {fault.strerror}") from None


def forget(run: Run, step: int, *, unvalidated: bool = False) -> None:
    """Drop the lines of later steps and, if `unvalidated`, of the validation of this step: they will be repeated."""
    path = run.folder / METRICS
    if not path.exists():
        return
    kept = []
    before = path.read_bytes()
    for line in before.decode("utf-8", "replace").splitlines():
        try:
            made = json.loads(line)
            again = unvalidated and made["step"] == step and made["kind"] == "validation"
            if made["step"] <= step and not again:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue  # a line that was cut off by a kill
    after = "".join(line + "\n" for line in kept).encode()
    if after != before:
        files.write(path, after)
