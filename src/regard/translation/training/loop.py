"""The training loop: batches in, checkpoints out, and nothing lost in between."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from regard.errors import CorruptedError, TrainingError
from regard.files import Lock
from regard.translation.configuration import Configuration
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import CONFIGURATION, Run
from regard.translation.training import checkpoints, choosing, measuring, memory, metrics, samples
from regard.translation.training.checkpoints import Progress
from regard.translation.training.epochs import Epochs, Part
from regard.translation.training.events import Observer, Stepped, Validated
from regard.translation.training.guiding import Guide
from regard.translation.training.learning import Learner, optimiser_of
from regard.translation.training.measuring import Measured, Setting, SlowWatch
from regard.translation.training.metrics import Meter
from regard.translation.training.precision import arithmetic, products
from regard.translation.training.processes import Processes
from regard.translation.training.schedule import PLATEAU_PATIENCE, factor
from regard.translation.training.validation import Quality, Stopped, Validation

Outcome = Literal["finished", "stopped"]


class Trainer:
    """Trains one model in one run folder; `train` may be called again after it stopped.

    With several processes each has a trainer of its own: they take the same steps on their parts of the same
    batches, and the first of them validates, writes and tells.
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
        self.configuration: Configuration = run.configuration
        self.settings = run.configuration.training
        self.device = self.processes.device
        self.optimiser = optimiser_of(self.settings, model)
        self.progress = Progress()
        self.lock: Lock | None = None  # on the run folder, of who holds it
        self._learner = Learner(model, self.optimiser, self.settings, self.processes, guide)
        self._since = Meter()
        self._watch = SlowWatch()

    @cached_property
    def total(self) -> int:
        """The steps of the budget. Those of `max_epochs` are an estimate: later passes may have a few more or fewer."""
        settings, budgets = self.settings, []
        if settings.max_steps:
            budgets.append(settings.max_steps)
        if settings.max_epochs:
            batches = settings.max_epochs * self.epochs.batches(0)
            budgets.append(math.ceil(batches / settings.accumulate))
        return min(budgets)

    @property
    def over(self) -> bool:
        """Whether the budget is spent or patience has ended, so that `train` would make no further step."""
        patience = self.settings.patience
        return self._spent() or (patience > 0 and self.progress.without_progress >= patience)

    @property
    def sharded(self) -> bool:
        """Whether each process holds only pieces of the weights."""
        return self.settings.shard and self.processes.size > 1

    def _loaded(self, newest: Path) -> Progress:
        """What a checkpoint restores; where it is broken, the error says how to do without it."""
        try:
            return checkpoints.load(newest, self.model, self.optimiser)
        except CorruptedError as fault:
            earlier = [step for step, folder in self.run.checkpoints() if folder != newest]
            way = f"to go on from step {earlier[-1]}" if earlier else "to begin anew"
            raise CorruptedError(f"{fault}: remove {newest} {way}") from None

    def resume(self) -> bool:
        """Go on from the newest checkpoint, if there is one."""
        if self.processes.first:
            checkpoints.clean(self.run)
        newest = self.run.newest_checkpoint()
        if newest is not None:
            self.progress = self._loaded(newest)
        (step,) = self.processes.numbers([self.progress.step])
        if step != self.progress.step:
            raise TrainingError(
                f"{self.run.folder}: the first process resumes at step {step:.0f}, this one at step "
                f"{self.progress.step}: all need the same run folder"
            )
        if newest is not None and self.processes.first:
            metrics.forget(self.run, self.progress.step, unvalidated=self.progress.unvalidated)
            self._prune()  # a kill may have come between the last save and this
        return newest is not None

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the budget or patience ends, or until `should_stop`; what was done is saved either way."""
        progress, settings = self.progress, self.settings
        if self.sharded:
            self._shard()
        self._settle()
        self._learner.model.train()
        self._since = Meter(*progress.since)
        saved = progress.step or -1
        while progress.unvalidated or not self.over:
            if not progress.unvalidated:  # else a validation was stopped: it comes first
                self._step()
                self.observer.advanced(progress.step, max(self.total, progress.step))
                if progress.step % settings.log_every == 0:
                    self._report()
                due = progress.step % settings.validate_every == 0
                progress.unvalidated = due or self._spent()
            if progress.unvalidated:
                try:
                    self._validate(should_stop)
                except Stopped:
                    if saved != progress.step:
                        self.save()
                    return "stopped"
                saved = self.save()
            elif progress.step % settings.save_every == 0:
                saved = self.save()
            if self.processes.any(should_stop()) and not self.over:
                if saved != progress.step:
                    self.save()
                return "stopped"
        if saved != progress.step:
            self.save()
        return "finished"

    def best_weights(self) -> tuple[dict[str, Tensor], str]:
        """The weights to publish, chosen on the validation set, and what they are in words."""
        return choosing.best_weights(
            self.run,
            self.progress,
            self.model,
            # As the checkpoints were, with which they are compared.
            lambda: self._score(self.measure(precision=self.progress.precision)),
        )

    def measure(
        self, should_stop: Callable[[], bool] = lambda: False, precision: str = "float32"
    ) -> Quality:
        """Validate the whole model, here and now."""
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
        self.progress.since = list(self._since.sums)
        if self.processes.first:
            self._check_folder()
            checkpoints.save(self.run, self.progress, self.model, self.optimiser)
            self._prune()
        return self.progress.step

    def _prune(self) -> None:
        best = {step for _, step in self.progress.best}
        checkpoints.prune(self.run, best | {self.progress.step})

    def _shard(self) -> None:
        from regard.translation.training.sharding import Sharded  # which loads much of torch

        if not isinstance(self._learner, Sharded):
            self._learner = Sharded(
                self.model,
                self.optimiser,
                self.settings,
                self.processes,
                self._learner.objective.guide,
            )

    def _spent(self) -> bool:
        """Whether all steps or all passes of the budget have been made."""
        settings, progress = self.settings, self.progress
        if settings.max_steps and progress.step >= settings.max_steps:
            return True
        last = settings.max_epochs - 1
        return settings.max_epochs > 0 and (
            progress.epoch > last
            or (progress.epoch == last and progress.batch >= self.epochs.batches(last))
        )

    def _step(self) -> None:
        started = time.perf_counter()
        parts = self._next_parts()
        progress, settings = self.progress, self.settings
        step = progress.step + 1
        tokens = sum(part.target_tokens for part in parts)
        rate = settings.learning_rate * factor(
            settings.schedule,
            step,
            warmup=settings.warmup,
            total=self.total,
            plateaus=progress.plateaus,
        )
        optimiser = self._learner.optimiser
        for group in optimiser.param_groups:
            group["lr"] = rate
        seed = self.processes.seed(self.configuration.seed, step)
        if seed is not None:
            torch.manual_seed(seed)
        loss = self.processes.total(self._gradients(parts, tokens, progress.precision))
        with memory.told(f"at step {step}, in the optimiser", "the sizes of the model"):
            self._learner.sum_gradients()
            norm = self._clip(loss, parts, step)
            optimiser.step()
            # A fused optimiser writes to the weights without saying so, and plans are kept by what is said.
            torch.autograd.graph.increment_version(self._learner.objective.parameters())
        optimiser.zero_grad(set_to_none=True)
        progress.step = step
        seconds = time.perf_counter() - started
        progress.target_tokens += tokens
        progress.seconds += seconds
        self._since.add(loss * tokens, tokens, seconds, norm, rate)

    def _gradients(self, parts: list[Part], tokens: int, precision: str) -> float:
        """Add up the gradients of the loss per token of the whole batch; this process's share of that loss."""
        total = 0.0
        for part in parts:
            with self._room_for(part), products(precision):
                with arithmetic(precision, self.device):
                    loss = self._learner.objective(part.batch.to(self.device)) / tokens
                if part.idle:
                    loss = loss * 0
                loss.backward()
            total += float(loss.detach())
        return total

    def _clip(self, loss: float, parts: list[Part], step: int) -> float:
        norm = self._learner.clip(self.settings.clip or math.inf)
        if math.isfinite(loss) and math.isfinite(norm):
            return norm
        rows = ", ".join(str(int(row)) for row in parts[0].rows[:5])
        raise TrainingError(
            f"step {step}: loss {loss}, gradient norm {norm}: training cannot go on; the batch holds "
            f"{sum(len(part.rows) for part in parts)} sentence pairs (rows {rows}, ...). "
            "Checkpoints are untouched: lower training.learning_rate or set training.clip"
        )

    def _room_for(self, part: Part) -> AbstractContextManager[None]:
        batch, step = part.batch, self.progress.step + 1
        rows = ", ".join(str(int(row)) for row in batch.rows[:5])
        return memory.told(
            f"on a batch of {batch.source.shape[0]} sentences, {batch.source.shape[1]} source and "
            f"{batch.target_in.shape[1]} target positions (step {step}, rows {rows}, ...)",
            "training.batch_tokens or data.longest",
        )

    def _next_parts(self) -> list[Part]:
        progress = self.progress
        parts: list[Part] = []
        for _ in range(self.settings.accumulate):
            if parts and self._spent():  # the last step of the last pass may have fewer batches
                break
            if progress.batch >= self.epochs.batches(progress.epoch):
                progress.epoch, progress.batch = progress.epoch + 1, 0
            parts.append(self.epochs.part(progress.epoch, progress.batch))
            progress.batch += 1
        return parts

    def _settle(self) -> None:
        """Choose the arithmetic and the number of threads; a resumed training keeps those of its checkpoint."""
        progress, settings = self.progress, self.settings
        most = int(self.processes.numbers([torch.get_num_threads()])[0])
        if not progress.precision:
            choice = self._measured_setting(most)
        else:
            before = Setting(progress.precision, progress.threads or settings.threads or most)
            choice = before.within(settings.precision, settings.threads, most)
            if choice != before:
                self.observer.note(
                    f"from step {progress.step + 1} on {choice}, before {before}: "
                    "the weights will have other bits than without this change"
                )
                progress.measured = 0.0
        progress.precision, progress.threads = choice
        torch.set_num_threads(progress.threads)
        self._watch = SlowWatch(choice, progress.measured)

    def _measured_setting(self, most: int) -> Setting:
        """The setting for a new training, measured where the configuration leaves it open."""
        settings = self.settings
        fixed = settings.threads or (0 if self.device.type == "cpu" else most)
        choices = measuring.settings(settings.precision, fixed, most)
        if len(choices) == 1:
            return choices[0]
        part = self.epochs.largest()
        measured = self._measure(part, choices)
        speeds = measured.speeds(part.target_tokens)
        self.observer.note(f"measured on a batch, in target tokens a second: {speeds}")
        self.observer.note(f"chose {measured.chosen}: a less simple one must be clearly quicker")
        self.progress.measured = part.target_tokens / min(measured.seconds[measured.chosen])
        return measured.chosen

    def _measure(self, part: Part, choices: list[Setting]) -> Measured:
        batch = part.batch.to(self.device)

        def loss() -> Tensor:
            mean: Tensor = self._learner.objective(batch) / part.target_tokens
            return mean

        def forget() -> None:
            self._learner.optimiser.zero_grad(set_to_none=True)

        trial = measuring.timed(loss, forget, self.device)
        devices = [self.device] if self.device.type == "cuda" else []
        self._learner.model.train()
        with torch.random.fork_rng(devices), self._room_for(part):
            # All processes hear the times of the first, so that they take the same turns.
            return measuring.measure(choices, lambda each: self.processes.numbers([trial(each)])[0])

    def _report(self) -> None:
        meter, self._since = self._since, Meter()
        event = Stepped(
            self.progress.step,
            self.progress.epoch,
            meter.loss / max(1, meter.tokens),
            meter.rate,
            meter.norm,
            meter.tokens / max(1e-9, meter.seconds),
            self.settings.max_epochs,
        )
        self._write({"kind": "step", **asdict(event)})
        self.observer.stepped(event, max(self.total, event.step))
        if self._watch.notices(event.tokens_per_second):
            self.observer.note(self._watch.advice(event.step, event.tokens_per_second))

    def _validate(self, should_stop: Callable[[], bool]) -> None:
        progress = self.progress
        quality = self._measured(should_stop)
        progress.unvalidated = False
        score = self._score(quality)
        better = progress.best_score is None or score > progress.best_score
        progress.best_score = score if better else progress.best_score
        progress.without_progress = 0 if better else progress.without_progress + 1
        waited = not better and progress.without_progress % PLATEAU_PATIENCE == 0
        if self.settings.schedule == "plateau" and waited:
            progress.plateaus += 1
        progress.best.append((score, progress.step))
        progress.best = sorted(progress.best, reverse=True)[: self.settings.keep_best]
        event = Validated(
            progress.step, *quality.numbers, score=score, best=better, samples=quality.samples
        )
        line = asdict(event)
        del line["samples"]
        self._write({"kind": "validation", **line})
        if self.processes.first:
            samples.write(self.run, progress.step, quality.samples)
        self.observer.validated(event)

    def _measured(self, should_stop: Callable[[], bool]) -> Quality:
        """What the first process measures, while the others wait for it."""
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

    def _write(self, line: dict[str, object]) -> None:
        if self.processes.first:
            self._check_folder()
            metrics.write(self.run, line)

    def _check_folder(self) -> None:
        """Write nothing into a folder that was removed, or that another training has made again meanwhile."""
        whole = os.path.isfile(self.run.folder / CONFIGURATION)
        if not whole or (self.lock is not None and not self.lock.held()):
            raise TrainingError(
                f"{self.run.folder}: the run folder or its {CONFIGURATION} was removed or replaced during the "
                f"training, which ends at step {self.progress.step}: nothing more is written there"
            )
