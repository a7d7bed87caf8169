"""The training loop: batches in, checkpoints out, and nothing lost in between."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Literal

import torch
from torch import Tensor

from regard import files
from regard.translation import weights
from regard.translation.configuration import Configuration
from regard.translation.errors import TrainingError
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import CHECKPOINTS, METRICS, Run
from regard.translation.text.batches import Batch
from regard.translation.training import checkpoints
from regard.translation.training.checkpoints import Progress
from regard.translation.training.epochs import Epochs
from regard.translation.training.events import Observer, Stepped, Validated
from regard.translation.training.loss import smoothed_cross_entropy
from regard.translation.training.precision import arithmetic, quickest
from regard.translation.training.schedule import PLATEAU_PATIENCE, factor
from regard.translation.training.validation import Quality, Stopped, Validation

Outcome = Literal["finished", "stopped"]


class Trainer:
    """Trains one model in one run folder; `train` may be called again after it stopped."""

    def __init__(
        self,
        run: Run,
        model: TranslationModel,
        epochs: Epochs,
        validation: Validation,
        observer: Observer | None = None,
    ) -> None:
        self.run = run
        self.model = model
        self.epochs = epochs
        self.validation = validation
        self.observer = observer or Observer()
        self.configuration: Configuration = run.configuration
        self.settings = run.configuration.training
        self.device = next(model.parameters()).device
        self.optimiser = _optimiser(self.configuration, model)
        self.progress = Progress()
        self._since = _Meter()

    def resume(self) -> bool:
        """Go on from the newest checkpoint, if there is one."""
        checkpoints.clean(self.run)
        newest = self.run.newest_checkpoint()
        if newest is None:
            return False
        self.progress = checkpoints.load(newest, self.model, self.optimiser)
        _forget_metrics(self.run, self.progress.step)
        return True

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the budget or patience ends, or until `should_stop`; what was done is saved either way."""
        progress, settings = self.progress, self.settings
        if not progress.precision:
            progress.precision = self._choose_precision()
        self.model.train()
        self._since = _Meter()
        saved = progress.step if self.run.newest_checkpoint() else -1
        while progress.unvalidated or not self._over():
            if not progress.unvalidated:  # else a validation was stopped: it comes first
                self._step()
                self.observer.advanced(progress.step, settings.max_steps)
                if progress.step % settings.log_every == 0:
                    self._report()
                last = progress.step >= settings.max_steps
                progress.unvalidated = progress.step % settings.validate_every == 0 or last
            if progress.unvalidated:
                try:
                    self._validate(should_stop)
                except Stopped:
                    if saved != progress.step:
                        self._save()
                    return "stopped"
                saved = self._save()
            elif progress.step % settings.save_every == 0:
                saved = self._save()
            if should_stop() and not self._over():
                if saved != progress.step:
                    self._save()
                return "stopped"
        if saved != progress.step:
            self._save()
        return "finished"

    def best_weights(self) -> tuple[dict[str, Tensor], str]:
        """The weights to publish, chosen on the validation set, and what they are in words."""
        folder = self.run.folder / CHECKPOINTS
        steps = [step for _, step in self.progress.best if (folder / f"step-{step}").exists()]
        if not steps:
            own = {name: tensor.clone() for name, tensor in weights.unique(self.model).items()}
            return own, f"the weights of step {self.progress.step}"
        single = checkpoints.mean([folder / f"step-{steps[0]}"])
        if not self.settings.average or len(steps) < 2:
            return single, f"the weights of step {steps[0]}"
        averaged = checkpoints.mean([folder / f"step-{step}" for step in steps])
        if self._score_of(averaged) >= self.progress.best[0][0]:
            listed = ", ".join(str(step) for step in sorted(steps))
            return averaged, f"the mean of the weights of steps {listed}"
        return single, f"the weights of step {steps[0]}"

    def _score_of(self, tensors: dict[str, Tensor]) -> float:
        """How good other weights are; the model's own come back after it, for training to go on."""
        folder = self.run.folder
        own = {name: tensor.clone() for name, tensor in weights.unique(self.model).items()}
        try:
            weights.load_into(self.model, tensors, folder)
            return self._score(self.validation.measure(self.model))
        finally:
            weights.load_into(self.model, own, folder)

    def _over(self) -> bool:
        patience = self.settings.patience
        return self.progress.step >= self.settings.max_steps or (
            patience > 0 and self.progress.without_progress >= patience
        )

    def _step(self) -> None:
        batches = self._next_batches()
        started = time.perf_counter()
        progress, settings = self.progress, self.settings
        step = progress.step + 1
        tokens = sum(batch.target_tokens for batch in batches)
        rate = settings.learning_rate * factor(
            settings.schedule,
            step,
            warmup=settings.warmup,
            total=settings.max_steps,
            plateaus=progress.plateaus,
        )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss = self._gradients(batches, tokens, progress.precision)
        norm = self._clip(loss, batches, step)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        progress.step = step
        seconds = time.perf_counter() - started
        progress.target_tokens += tokens
        progress.seconds += seconds
        self._since.add(loss * tokens, tokens, seconds, norm, rate)

    def _gradients(self, batches: list[Batch], tokens: int, precision: str) -> float:
        total = 0.0
        for batch in batches:
            try:
                with arithmetic(precision, self.device):
                    loss = self._loss(batch.to(self.device)) / tokens
                loss.backward()
            except (MemoryError, RuntimeError) as fault:
                raise _out_of_memory(fault, batch) from None
            total += float(loss.detach())
        return total

    def _loss(self, batch: Batch) -> Tensor:
        hidden = self.model.hidden(batch.source, batch.source_lengths, batch.target_in)
        real = (
            torch.arange(batch.target_in.shape[1], device=hidden.device)
            < batch.target_lengths[:, None]
        )
        logits = self.model.logits(hidden[real])
        return smoothed_cross_entropy(logits, batch.target_out[real], self.settings.label_smoothing)

    def _clip(self, loss: float, batches: list[Batch], step: int) -> float:
        limit = self.settings.clip or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if math.isfinite(loss) and math.isfinite(norm):
            return norm
        rows = ", ".join(str(int(row)) for row in batches[0].rows[:5])
        raise TrainingError(
            f"step {step}: loss {loss}, gradient norm {norm}: training cannot go on; the batch holds "
            f"{sum(len(b.rows) for b in batches)} sentence pairs (rows {rows}, ...). "
            "Checkpoints are untouched: lower training.learning_rate or set training.clip"
        )

    def _next_batches(self) -> list[Batch]:
        progress = self.progress
        batches = []
        for _ in range(self.settings.accumulate):
            if progress.batch >= self.epochs.batches(progress.epoch):
                progress.epoch, progress.batch = progress.epoch + 1, 0
            batches.append(self.epochs.batch(progress.epoch, progress.batch))
            progress.batch += 1
        return batches

    def _choose_precision(self) -> str:
        if self.settings.precision != "auto":
            return self.settings.precision
        batch = self.epochs.largest().to(self.device)
        random = torch.get_rng_state()

        def step() -> None:
            (self._loss(batch) / batch.target_tokens).backward()
            self.optimiser.zero_grad(set_to_none=True)

        try:
            self.model.train()
            chosen = quickest(step, self.device)
        except (MemoryError, RuntimeError) as fault:
            raise _out_of_memory(fault, batch) from None
        finally:
            torch.set_rng_state(random)
        self.observer.note(f"precision {chosen}, the quickest measured on this machine")
        return chosen

    def _report(self) -> None:
        meter, self._since = self._since, _Meter()
        event = Stepped(
            self.progress.step,
            self.progress.epoch,
            meter.loss / max(1, meter.tokens),
            meter.rate,
            meter.norm,
            meter.tokens / max(1e-9, meter.seconds),
        )
        _write_metrics(self.run, {"kind": "step", **asdict(event)})
        self.observer.stepped(event, self.settings.max_steps)

    def _validate(self, should_stop: Callable[[], bool]) -> None:
        progress = self.progress
        with arithmetic(progress.precision, self.device):
            quality = self.validation.measure(self.model, should_stop)
        progress.unvalidated = False
        score = self._score(quality)
        better = progress.best_score is None or score > progress.best_score
        progress.best_score = score if better else progress.best_score
        progress.without_progress = 0 if better else progress.without_progress + 1
        if self.settings.schedule == "plateau" and progress.without_progress == PLATEAU_PATIENCE:
            progress.plateaus += 1
        progress.best.append((score, progress.step))
        progress.best = sorted(progress.best, reverse=True)[: self.settings.keep_best]
        event = Validated(progress.step, **asdict(quality), score=score, best=better)
        _write_metrics(self.run, {"kind": "validation", **asdict(event)})
        self.observer.validated(event)

    def _score(self, quality: Quality) -> float:
        generated = self.configuration.data.generated is not None
        return quality.exact if generated else quality.bleu

    def _save(self) -> int:
        checkpoints.save(self.run, self.progress, self.model, self.optimiser)
        kept = {step for _, step in self.progress.best} | {self.progress.step}
        checkpoints.prune(self.run, kept)
        return self.progress.step


class _Meter:
    """Sums since the last report."""

    def __init__(self) -> None:
        self.loss, self.tokens, self.seconds = 0.0, 0, 0.0
        self.norm, self.rate = 0.0, 0.0

    def add(self, loss: float, tokens: int, seconds: float, norm: float, rate: float) -> None:
        self.loss += loss
        self.tokens += tokens
        self.seconds += seconds
        self.norm, self.rate = norm, rate


def _optimiser(configuration: Configuration, model: TranslationModel) -> torch.optim.Optimizer:
    settings = configuration.training
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _out_of_memory(fault: Exception, batch: Batch) -> Exception:
    text = str(fault).lower()
    if not isinstance(fault, MemoryError) and "memory" not in text and "alloc" not in text:
        return fault
    return TrainingError(
        f"out of memory on a batch of {batch.source.shape[0]} sentences, {batch.source.shape[1]} source and "
        f"{batch.target_in.shape[1]} target positions: lower training.batch_tokens or data.longest"
    )


def _write_metrics(run: Run, line: dict[str, object]) -> None:
    try:
        files.append(run.folder / METRICS, (json.dumps(line) + "\n").encode())
    except OSError as fault:
        raise TrainingError(
            f"{run.folder / METRICS}: cannot be written: {fault.strerror}"
        ) from None


def _forget_metrics(run: Run, step: int) -> None:
    """Drop the lines of steps that will be made again."""
    path = run.folder / METRICS
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue  # cut off by a kill
    files.write(path, "".join(line + "\n" for line in kept).encode())
