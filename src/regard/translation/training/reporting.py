"""Reports and validations of a training: observers, metrics.jsonl, samples.txt, and scalars for TensorBoard."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from regard import files
from regard.errors import ConfigurationError, TrainingError, raised_as
from regard.translation.runs import Run
from regard.translation.runs.layout import METRICS
from regard.translation.training.progress import Progress

SAMPLES = "samples.txt"
TENSORBOARD = "tensorboard"
_SAMPLED_STEP = re.compile(r"^step (\d+)$", re.MULTILINE)
_SCALARS = {
    "step": ("training", ("loss", "learning_rate", "gradient_norm", "tokens_per_second")),
    "validation": ("validation", ("loss", "bleu", "chrf", "exact")),
}


@dataclass(frozen=True)
class Stepped:
    """A report. The loss is in nats a target token, the mean since the last report."""

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    epochs: int = 0  # the passes of the budget; 0 without `max_epochs`


class Sample(NamedTuple):
    """A sentence of the validation set, its reference and its greedy translation."""

    source: str
    reference: str
    output: str

    def lines(self) -> list[str]:
        """The sample as three lines.

        >>> print("\\n".join(Sample("El gato.", "The cat.", "A cat.").lines()))
          source     El gato.
          reference  The cat.
          output     A cat.
        """
        return [
            # A translation may contain characters that end a line.
            f"  {name:<9}  {' '.join(text.splitlines())}".rstrip()
            for name, text in self._asdict().items()
        ]


@dataclass(frozen=True)
class Quality:
    """Loss in nats a target token (not smoothed), scores of greedy translations in percent, and sample translations."""

    loss: float
    bleu: float
    chrf: float
    exact: float
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Validated(Quality):
    """A validation. The model with the largest `score` is the best."""

    step: int
    score: float
    best: bool


class Observer:
    """Receives all events and ignores them. Override the methods that you need."""

    def note(self, text: str) -> None:
        """Receive a message for the user."""

    def doing(self, task: str) -> None:
        """Receive what begins now, before the first step."""

    def stepped(self, event: Stepped, total: int) -> None:
        """Receive a report, after every `log_every` steps."""

    def advanced(self, step: int, total: int) -> None:
        """Receive the number of a step, after every step."""

    def validated(self, event: Validated) -> None:
        """Receive a validation."""


class Reports:
    """Passes the reports of a training on to an observer and, if it `writes`, writes them into its run folder.

    Scalars of steps later than the last one that was made, from before an interruption, are hidden.
    """

    def __init__(self, run: Run, writes: bool, observer: Observer, step: int) -> None:
        self._run, self._writes, self._observer = run, writes, observer
        self._scalars: Any = None
        if writes and run.configuration.training.tensorboard:
            self._scalars = scalar_writer(run, step)

    def close(self) -> None:
        if self._scalars is not None:
            self._scalars.close()

    def stepped(self, progress: Progress, rate: float, norm: float, total: int) -> Stepped:
        """Report the steps since the last report and the last one's rate and norm; begins their sums anew."""
        loss, tokens, seconds = progress.since
        progress.since = []
        event = Stepped(
            progress.step,
            progress.epoch,
            loss / max(1, tokens),
            rate,
            norm,
            tokens / max(1e-9, seconds),
            self._run.configuration.training.max_epochs,
        )
        self._write("step", event)
        self._observer.stepped(event, max(total, event.step))
        return event

    def validated(self, event: Validated) -> None:
        self._write("validation", event)
        if self._writes:
            _write_samples(self._run, event.step, event.samples)
        self._observer.validated(event)

    def _write(self, kind: str, event: Stepped | Validated) -> None:
        if not self._writes:
            return
        self._run.check_there(event.step)
        line = {"kind": kind, "step": event.step, **asdict(event)}
        line.pop("samples", None)
        path = self._run.folder / METRICS
        with raised_as(TrainingError, f"{path}: cannot be written"):
            files.append(path, (json.dumps(line) + "\n").encode())
        if self._scalars is not None:
            group, names = _SCALARS[kind]
            for name in names:
                self._scalars.add_scalar(f"{group}/{name}", line[name], event.step)
            if kind == "validation":
                self._scalars.flush()


def forget(run: Run, step: int, *, unvalidated: bool = False) -> None:
    """Drop the lines of later steps and, if `unvalidated`, of the validation of this step: they will be repeated."""
    path = run.folder / METRICS
    if not path.exists():
        return
    lines_kept = []
    old_text = path.read_bytes()
    for line in old_text.decode("utf-8", "replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a line that was cut off by a kill
            event = json.loads(line)
            is_repeated = unvalidated and event["step"] == step and event["kind"] == "validation"
            if event["step"] <= step and not is_repeated:
                lines_kept.append(line)
    new_text = "".join(line + "\n" for line in lines_kept).encode()
    if new_text != old_text:
        files.write(path, new_text)


def scalar_writer(run: Run, step: int) -> Any:
    """A writer of scalars for TensorBoard, in the run folder. Raises `ConfigurationError` without TensorBoard."""
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(files.subfolder(run.folder / TENSORBOARD)), purge_step=step + 1)


def check_tensorboard() -> None:
    """Raise `ConfigurationError` when tensorboard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "training.tensorboard = true needs TensorBoard: pip install 'regard[tensorboard]'"
        ) from None


def _write_samples(run: Run, step: int, samples: Sequence[Sample]) -> None:
    """Add the samples of a step. Samples of this and later steps, from before an interruption, are removed."""
    if not samples:
        return
    path = run.folder / SAMPLES
    with raised_as(TrainingError, f"{path}: cannot be written"):
        old_text = files.read(path).decode("utf-8", "replace") if path.exists() else ""
        later = (
            match.start() for match in _SAMPLED_STEP.finditer(old_text) if int(match[1]) >= step
        )
        blocks = "\n\n".join("\n".join(sample.lines()) for sample in samples)
        text = f"{old_text[: next(later, None)]}step {step}\n{blocks}\n\n"
        files.write(path, text.encode("utf-8", "replace"))
