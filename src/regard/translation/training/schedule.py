"""How many steps and passes a training makes, which batches each step takes, and its learning rate."""

import math
from functools import cached_property

from regard.translation.settings.training import TrainingSettings
from regard.translation.training.epochs import Epochs, Part
from regard.translation.training.progress import Progress

# A plateau multiplies the learning rate by this factor.
PLATEAU_FACTOR = 0.5


class Schedule:
    """`max_steps`, `max_epochs` and `max_minutes`: the first that is reached ends the training. So does patience."""

    def __init__(self, settings: TrainingSettings, epochs: Epochs) -> None:
        self._settings = settings
        self._epochs = epochs

    @cached_property
    def steps(self) -> int:
        settings = self._settings
        if not settings.max_epochs:
            return settings.max_steps
        steps = math.ceil(settings.max_epochs * self._epochs.batches(0) / settings.accumulate)
        return min(steps, settings.max_steps or steps)

    def spent(self, progress: Progress) -> bool:
        settings = self._settings
        if settings.max_steps and progress.step >= settings.max_steps:
            return True
        if settings.max_minutes and progress.minutes >= settings.max_minutes:
            return True
        last_epoch = settings.max_epochs - 1
        return settings.max_epochs > 0 and (
            progress.epoch > last_epoch
            or (progress.epoch == last_epoch and progress.batch >= self._epochs.batches(last_epoch))
        )

    def over(self, progress: Progress) -> bool:
        """Whether the training ends here: the budget is spent, or patience has ended."""
        patience = self._settings.patience
        return self.spent(progress) or (patience > 0 and progress.without_progress >= patience)

    def next_parts(self, progress: Progress) -> list[Part]:
        """This process's parts of the batches of the next step; counts these batches in `progress`."""
        batches: list[Part] = []
        for _ in range(self._settings.accumulate):
            if batches and self.spent(progress):  # the last step of the last pass may have fewer
                break
            if progress.batch >= self._epochs.batches(progress.epoch):
                progress.epoch, progress.batch = progress.epoch + 1, 0
            batches.append(self._epochs.part(progress.epoch, progress.batch))
            progress.batch += 1
        return batches

    def rate(self, progress: Progress) -> float:
        settings = self._settings
        return settings.learning_rate * factor(
            settings.schedule,
            progress.step + 1,
            warmup=settings.warmup,
            total=self.steps,
            plateaus=progress.plateaus,
        )


def factor(name: str, step: int, *, warmup: int, total: int, plateaus: int = 0) -> float:
    """The factor of the learning rate at a step (counted from 1): linear warm-up, then the schedule.

    `inverse_square_root`: sqrt(warmup / step) (arXiv 1706.03762, section 5.3, scaled to 1 at its peak);
    `cosine`: half a cosine, down to 0 at step `total` (arXiv 1608.03983); `plateau`: halved after each plateau.
    """
    if step <= warmup:
        return step / max(1, warmup)
    if name == "inverse_square_root":
        return math.sqrt(max(1, warmup) / step)
    if name == "cosine":
        progress = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    if name == "plateau":
        return float(PLATEAU_FACTOR**plateaus)
    return 1.0
