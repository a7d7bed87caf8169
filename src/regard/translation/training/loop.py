"""The training loop: it makes steps, reports, validates and saves, until the budget or patience ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from regard.errors import TrainingError
from regard.files import Lock
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run
from regard.translation.training import checkpoints, choosing, memory, reporting, tuning
from regard.translation.training.budget import Budget
from regard.translation.training.epochs import Epochs
from regard.translation.training.events import Observer
from regard.translation.training.guiding import Guide
from regard.translation.training.measuring import SlowWatch
from regard.translation.training.precision import arithmetic
from regard.translation.training.processes import Processes
from regard.translation.training.progress import Progress
from regard.translation.training.reporting import Reports
from regard.translation.training.schedule import factor
from regard.translation.training.step import Learner, Update, optimiser_of
from regard.translation.training.validation import Quality, Stopped, Validation

Outcome = Literal["finished", "stopped"]


class Trainer:
    """Trains one model in one run folder; `train` may be called again after it stopped.

    Of several processes each has its own trainer. All make the same steps, each on its part of every batch; the
    first process validates, writes and reports.

    Attributes:
        lock: the lock on the run folder, if this process holds it; with it, a replaced folder is noticed.
    """

    def __init__(
        self,
        run: Run,
        model: TranslationModel,
        epochs: Epochs,
        validation: Validation,
        observer: Observer | None = None,
        processes: Processes | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.run = run
        self.model = model
        self.epochs = epochs
        self.validation = validation
        self.observer = observer or Observer()
        self.processes = processes or Processes(str(next(model.parameters()).device))
        self.configuration = run.configuration
        self.settings = run.configuration.training
        self.device = self.processes.device
        self.optimiser = optimiser_of(self.settings, model)
        self.progress = Progress()
        self.lock: Lock | None = None
        self._guide = guide
        self._budget = Budget(self.settings, epochs)
        self._learner = Learner(model, self.optimiser, self.settings, self.processes, guide)

    @property
    def total(self) -> int:
        """The steps of the budget; an estimate where `max_epochs` sets it."""
        return self._budget.steps

    @property
    def over(self) -> bool:
        """Whether the budget is spent or patience has ended, so that `train` would make no further step."""
        return self._budget.over(self.progress)

    def resume(self) -> bool:
        """Load the newest checkpoint; whether there is one."""
        if self.processes.first:
            checkpoints.clean(self.run)
        found = checkpoints.load_newest(self.run, self.model, self.optimiser)
        self.progress = found or self.progress
        (step,) = self.processes.numbers([self.progress.step])
        if step != self.progress.step:
            raise TrainingError(
                f"{self.run.folder}: the first process resumes at step {step:.0f}, this one at step "
                f"{self.progress.step}: all need the same run folder"
            )
        if found is not None and self.processes.first:
            reporting.forget(self.run, found.step, unvalidated=found.unvalidated)
            self._prune()  # a kill may have come between the last save and this
        return found is not None

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the budget or patience ends, or until `should_stop` returns True. Both save a checkpoint."""
        reports, progress, settings = self._begin(), self.progress, self.settings
        saved = progress.step or -1
        stopped = False
        while not stopped and (progress.unvalidated or not self.over):
            if not progress.unvalidated:  # else the validation that was stopped comes first
                update = self._step()
                self.observer.advanced(progress.step, max(self.total, progress.step))
                if progress.step % settings.log_every == 0:
                    reports.stepped(progress, update)
                due = progress.step % settings.validate_every == 0
                progress.unvalidated = due or self._budget.spent(progress)
            if progress.unvalidated:
                try:
                    self._validate(reports, should_stop)
                except Stopped:
                    stopped = True
                    break
                saved = self.save()
            elif progress.step % settings.save_every == 0:
                saved = self.save()
            stopped = self.processes.any(should_stop()) and not self.over
        if saved != progress.step:
            self.save()
        return "stopped" if stopped else "finished"

    def best_weights(self) -> tuple[dict[str, Tensor], str]:
        """The weights to publish, chosen on the validation set, and their description."""
        return choosing.best_weights(
            self.run,
            self.progress,
            self.model,
            # In the precision of the checkpoints' scores, with which it is compared.
            lambda: self._score(self.measure(precision=self.progress.precision)),
        )

    def measure(
        self, should_stop: Callable[[], bool] = lambda: False, precision: str = "float32"
    ) -> Quality:
        """Validate the whole model in this process."""
        home = next(self.model.parameters()).device
        lower = "data.longest, or take a smaller model"
        with (
            memory.told(f"while validating after step {self.progress.step}", lower),
            arithmetic(precision, self.device),
        ):
            try:
                return self.validation.measure(self.model.to(self.device), should_stop)
            finally:
                self.model.to(home)

    def save(self) -> int:
        """Write a checkpoint of this step, and remove those that are neither the newest nor among the best."""
        self._learner.gather()
        if self.processes.first:
            checkpoints.check_folder(self.run, self.lock, self.progress.step)
            checkpoints.save(self.run, self.progress, self.model, self.optimiser)
            self._prune()
        return self.progress.step

    def _prune(self) -> None:
        best = {step for _, step in self.progress.best}
        checkpoints.prune(self.run, best | {self.progress.step})

    def _begin(self) -> Reports:
        """Shard the model, if it is to be; choose the arithmetic; open the reports."""
        settings, progress = self.settings, self.progress
        if settings.shard and self.processes.size > 1:
            self._shard()
        choice = tuning.settle(progress, settings, self._learner, self.epochs, self.observer)
        self._learner.model.train()
        return Reports(
            run=self.run if self.processes.first else None,
            lock=self.lock,
            observer=self.observer,
            total=self.total,
            epochs=settings.max_epochs,
            watch=SlowWatch(choice, progress.measured),
        )

    def _shard(self) -> None:
        from regard.translation.training.sharding import ShardedLearner  # loads much of torch

        if not isinstance(self._learner, ShardedLearner):
            self._learner = ShardedLearner(
                self.model, self.optimiser, self.settings, self.processes, self._guide
            )

    def _step(self) -> Update:
        started = time.perf_counter()
        progress, settings = self.progress, self.settings
        parts = self._budget.next_parts(progress)
        step = progress.step + 1
        rate = settings.learning_rate * factor(
            settings.schedule,
            step,
            warmup=settings.warmup,
            total=self.total,
            plateaus=progress.plateaus,
        )
        seed = self.processes.seed(self.configuration.seed, step)
        if seed is not None:
            torch.manual_seed(seed)
        update = self._learner.step(parts, step, rate, progress.precision)
        progress.count_step(update.loss, update.tokens, time.perf_counter() - started)
        return update

    def _validate(self, reports: Reports, should_stop: Callable[[], bool]) -> None:
        quality = self._measure_in_first(should_stop)
        score = self._score(quality)
        best = self.progress.count_validation(score, self.settings)
        reports.validated(self.progress.step, quality, score, best)

    def _measure_in_first(self, should_stop: Callable[[], bool]) -> Quality:
        """Validate in the first process, while the others wait; all return the same numbers, or raise `Stopped`."""
        self._learner.gather()
        quality: Quality | None = None
        if self.processes.first:
            try:
                quality = self.measure(should_stop, self.progress.precision)
            except Stopped:
                if self.processes.size == 1:
                    raise
        given = [0.0] * 5 if quality is None else [1.0, *quality.numbers]
        done, loss, bleu, chrf, exact = self.processes.numbers(given)
        if not done:
            raise Stopped
        return quality or Quality(loss, bleu, chrf, exact)

    def _score(self, quality: Quality) -> float:
        generated = self.configuration.data.generated is not None
        return quality.exact if generated else quality.bleu
