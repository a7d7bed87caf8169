"""The training loop: it makes steps, reports, validates and saves, until the budget or patience ends."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Literal

import torch
from torch import Tensor

from regard.attention.kernels.additive.kernels import waiting_for_loops
from regard.errors import DataError, TrainingError, memory_named
from regard.translation import weights
from regard.translation.evaluation import segmenting
from regard.translation.models.building import build
from regard.translation.runs import Run, Tokenizers
from regard.translation.training import checkpoints, reporting, tuning
from regard.translation.training.data import Data
from regard.translation.training.epochs import Epochs
from regard.translation.training.guiding import Guide, with_learnt_links
from regard.translation.training.optimiser import optimiser_of
from regard.translation.training.processes import Processes
from regard.translation.training.progress import Progress
from regard.translation.training.reporting import Observer, Quality, Reports, Validated
from regard.translation.training.schedule import Schedule
from regard.translation.training.step import Learner, Update, arithmetic
from regard.translation.training.tuning import SlowWatch
from regard.translation.training.validation import Stopped, Validation

Outcome = Literal["finished", "stopped"]


class Trainer:
    """Trains one model in one run folder; `train` may be called again after it stopped.

    Of several processes each has its own trainer. All make the same steps, each on its part of every batch; the
    first process validates, writes and reports.
    """

    def __init__(
        self, run: Run, tokenizers: Tokenizers, data: Data, observer: Observer, processes: Processes
    ) -> None:
        self.run, self.observer, self.processes = run, observer, processes
        self.configuration = configuration = run.configuration
        self.settings = settings = configuration.training
        self.device = processes.device
        if settings.threads:
            torch.set_num_threads(settings.threads)
        torch.manual_seed(configuration.seed)
        self.model = build(configuration, len(tokenizers.source), len(tokenizers.target))
        self._sharded = settings.shard and processes.size > 1
        if settings.shard and not self._sharded:
            observer.note("training.shard changes nothing: one process holds all of the model")
        if not self._sharded:  # shards are moved to the device one by one
            self.model.to(self.device)
        process = processes.rank, processes.size
        self.epochs = Epochs(data.train, tokenizers, configuration, *process)
        language = configuration.data.target_languages[0]
        self.validation = Validation(data.valid, tokenizers, settings, configuration.seed, language)
        self.progress = Progress(
            tokenizer=self.validation.tokenizer, validation_sentences=len(self.validation.pairs)
        )
        guide = None
        if settings.guide is not None:
            try:
                pairs = data.train
                if not any(each.links for each in configuration.data.training):
                    observer.note(
                        f"training.guide: learns the word links of {len(pairs):,} pairs from their text"
                    )
                    pairs = with_learnt_links(pairs, settings.guide, configuration.seed)
                guide = Guide(settings.guide, pairs, tokenizers)
                if guide.from_one:
                    observer.note(
                        "no word link has a word 0: links are read as counted from 0, these seem to count from 1"
                    )
            except DataError as fault:
                names = [str(each.links) for each in configuration.data.training if each.links]
                raise DataError(f"{' or '.join(names)}: {fault}") from None
        self.optimiser = optimiser_of(settings, self.model)
        self.schedule = Schedule(settings, self.epochs)
        self._learner = Learner(self.model, self.optimiser, settings, processes, guide)

    @property
    def over(self) -> bool:
        """Whether the budget is spent or patience has ended, so that `train` would make no further step."""
        return self.schedule.over(self.progress)

    def resume(self) -> bool:
        """Load the newest checkpoint; whether there is one."""
        if self.processes.is_first:
            checkpoints.clean(self.run)
        newest = checkpoints.load_newest(self.run, self.model, self.optimiser)
        self.progress = newest or self.progress
        (step,) = self.processes.numbers([self.progress.step])
        if step != self.progress.step:
            raise TrainingError(
                f"{self.run.folder}: the first process resumes at step {step:.0f}, this one at step "
                f"{self.progress.step}: all need the same run folder"
            )
        if newest is not None:
            self._score_as_before(newest)
            self._score_again(newest)
        if newest is not None and self.processes.is_first:
            reporting.forget(self.run, newest.step, unvalidated=newest.unvalidated)
            self._prune()  # a kill may have come between the last save and this
        return newest is not None

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the budget or patience ends, or until `should_stop` returns True. Both save a checkpoint."""
        progress, settings, watch = self.progress, self.settings, self._begin()
        saved = progress.step or -1
        stopped, total = False, self.schedule.steps
        self.observer.doing("making the first steps")
        reports = Reports(self.run, self.processes.is_first, self.observer, progress.step)
        with closing(reports), waiting_for_loops():
            while not stopped and (progress.unvalidated or not self.over):
                if not progress.unvalidated:  # else the validation that was stopped comes first
                    update = self._step()
                    self.observer.advanced(progress.step, max(total, progress.step))
                    if progress.step % settings.log_every == 0:
                        event = reports.stepped(progress, update.rate, update.norm, total)
                        advice = watch.advice(event.step, event.tokens_per_second)
                        if advice is not None:
                            self.observer.note(advice)
                    due = progress.step % settings.validate_every == 0
                    progress.unvalidated = due or self.schedule.spent(progress)
                if progress.unvalidated:
                    try:
                        reports.validated(self._validate(should_stop))
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
        """The weights to publish, chosen on the validation set, and their description.

        They are those of the best checkpoint, or the mean of the best ones if that is better.
        """
        model, checkpoint_folders = self.model, dict(self.run.checkpoints())
        best = [(score, step) for score, step in self.progress.best if step in checkpoint_folders]
        if not best:
            return self._copied_weights(), f"the weights of step {self.progress.step}"
        steps = [step for _, step in best]
        for step in steps:
            self.run.check_resumable(checkpoint_folders[step])
        single = (
            checkpoints.mean([checkpoint_folders[steps[0]]], model),
            f"the weights of step {steps[0]}",
        )
        if not self.settings.average or len(steps) < 2:
            return single
        averaged = checkpoints.mean([checkpoint_folders[step] for step in steps], model)
        if self._score_of(averaged) < best[0][0]:
            return single
        step_names = ", ".join(str(step) for step in sorted(steps))
        return averaged, f"the mean of the weights of steps {step_names}"

    def measure(
        self, should_stop: Callable[[], bool] = lambda: False, precision: str = "float32"
    ) -> Quality:
        """Validate the whole model in this process."""
        home = next(self.model.parameters()).device
        lower = "data.longest, or take a smaller model"
        with (
            memory_named(f"while validating after step {self.progress.step}", lower),
            arithmetic(precision, self.device),
        ):
            try:
                return self.validation.measure(self.model.to(self.device), should_stop)
            finally:
                self.model.to(home)

    def save(self) -> int:
        """Write a checkpoint of this step, and remove those that are neither the newest nor among the best."""
        self._learner.gather()
        if self.processes.is_first:
            self.run.check_there(self.progress.step)
            checkpoints.save(self.run, self.progress, self.model, self.optimiser)
            self._prune()
        return self.progress.step

    def _prune(self) -> None:
        best = {step for _, step in self.progress.best}
        checkpoints.prune(self.run, best | {self.progress.step})

    def _score_as_before(self, progress: Progress) -> None:
        """Compare scores of one tokenizer only: BLEU of another has another scale."""
        usual = self.validation.tokenizer
        validated = progress.best_score is not None
        progress.tokenizer = progress.tokenizer or (segmenting.USUAL if validated else usual)
        self.validation.tokenizer = progress.tokenizer
        if progress.tokenizer != usual:
            self.observer.note(
                f"BLEU of the validations keeps the tokenizer {progress.tokenizer}, with which this training began: "
                f"a new one would have {usual}, and other scores"
            )

    def _score_again(self, progress: Progress) -> None:
        """Score the best checkpoints anew where a validation has more or fewer sentences than before."""
        earlier, sentences = progress.validation_sentences, len(self.validation.pairs)
        progress.validation_sentences = sentences
        if earlier in (0, sentences) or not progress.best:
            return
        self.observer.note(
            f"validations have {sentences} sentences, {earlier} before: the best checkpoints are scored again"
        )
        if self.processes.is_first:
            folders = dict(self.run.checkpoints())
            steps = [step for _, step in progress.best if step in folders]
            saved = (checkpoints.mean([folders[step]], self.model) for step in steps)
            scores = [self._score_of(tensors) for tensors in saved]
            progress.best = sorted(zip(scores, steps, strict=True), reverse=True)
        (best_score,) = self.processes.numbers([progress.best[0][0] if progress.best else -1.0])
        progress.best_score = best_score if best_score >= 0 else None

    def _begin(self) -> SlowWatch:
        """Shard the model, if it is to be, and choose the arithmetic."""
        if self._sharded:
            from regard.translation.training.sharding import ShardedLearner  # loads much of torch

            if not isinstance(self._learner, ShardedLearner):
                self._learner = ShardedLearner(self._learner)
        choice = tuning.settle(self.progress, self._learner, self.epochs, self.observer)
        self._learner.model.train()
        return SlowWatch(choice, self.progress.measured)

    def _step(self) -> Update:
        started = time.perf_counter()
        progress = self.progress
        rate = self.schedule.rate(progress)
        batches = self.schedule.next_parts(progress)
        step = progress.step + 1
        seed = self.processes.seed(self.configuration.seed, step)
        if seed is not None:
            torch.manual_seed(seed)
        update = self._learner.step(batches, step, rate, progress.precision)
        (seconds,) = self._agreed([time.perf_counter() - started])
        progress.count_step(update.loss, update.tokens, seconds)
        return update

    def _agreed(self, seconds: list[float]) -> list[float]:
        """The seconds of the first process, where the training ends by them: all must end at the same step."""
        return self.processes.numbers(seconds) if self.settings.max_minutes else seconds

    def _validate(self, should_stop: Callable[[], bool]) -> Validated:
        """Validate in the first process, while the others wait; all return the same, or raise `Stopped`."""
        self._learner.gather()
        started = time.perf_counter()
        quality: Quality | None = None
        if self.processes.is_first:
            try:
                quality = self.measure(should_stop, self.progress.precision)
            except Stopped:
                if self.processes.size == 1:
                    raise
        numbers = [0.0] * 5
        if quality is not None:
            numbers = [1.0, quality.loss, quality.bleu, quality.chrf, quality.exact]
        validated, loss, bleu, chrf, exact = self.processes.numbers(numbers)
        if not validated:
            raise Stopped
        (seconds,) = self._agreed([time.perf_counter() - started])
        self.progress.validation_seconds += seconds
        quality = quality or Quality(loss, bleu, chrf, exact)
        score = self._score(quality)
        best = self.progress.count_validation(score, self.settings)
        return Validated(**vars(quality), step=self.progress.step, score=score, best=best)

    def _copied_weights(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in weights.unique(self.model).items()}

    def _score_of(self, tensors: dict[str, Tensor]) -> float:
        """The score of other weights, in the precision of the checkpoints' scores; the present ones come back."""
        present = self._copied_weights()
        try:
            weights.load_into(self.model, tensors, self.run.folder)
            return self._score(self.measure(precision=self.progress.precision))
        finally:
            weights.load_into(self.model, present, self.run.folder)

    def _score(self, quality: Quality) -> float:
        generated = self.configuration.data.generated is not None
        return quality.exact if generated else quality.bleu
