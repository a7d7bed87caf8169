"""The arithmetic and the threads of a training: measured for a new one, kept for a resumed one."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.translation.settings import TrainingSettings
from regard.translation.training import measuring, memory
from regard.translation.training.epochs import Epochs
from regard.translation.training.events import Observer
from regard.translation.training.measuring import Setting
from regard.translation.training.progress import Progress
from regard.translation.training.step import Learner


def settle(
    progress: Progress,
    settings: TrainingSettings,
    learner: Learner,
    epochs: Epochs,
    observer: Observer,
) -> Setting:
    """Choose precision and threads; keep them in `progress`, and set torch's threads."""
    processes = learner.processes
    most = int(processes.numbers([torch.get_num_threads()])[0])
    if progress.precision:
        before = Setting(progress.precision, progress.threads or settings.threads or most)
        choice = before.within(settings.precision, settings.threads, most)
        if choice != before:
            observer.note(
                f"from step {progress.step + 1} on {choice}, before {before}: "
                "the weights will have other bits than without this change"
            )
            progress.measured = 0.0
    else:
        fixed = settings.threads or (0 if processes.device.type == "cpu" else most)
        choices = measuring.settings(settings.precision, fixed, most)
        if len(choices) > 1:
            choice, progress.measured = _measured(choices, learner, epochs, observer)
        else:
            choice = choices[0]
    progress.precision, progress.threads = choice
    torch.set_num_threads(progress.threads)
    return choice


def _measured(
    choices: list[Setting], learner: Learner, epochs: Epochs, observer: Observer
) -> tuple[Setting, float]:
    """The best setting for one large batch, and its target tokens a second. No random number is used up."""
    part, processes = epochs.largest(), learner.processes
    device = processes.device
    batch = part.batch.to(device)

    def loss() -> Tensor:
        mean: Tensor = learner.objective(batch) / part.target_tokens
        return mean

    def forget() -> None:
        learner.optimiser.zero_grad(set_to_none=True)

    trial = measuring.timed(loss, forget, device)
    learner.model.train()
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        memory.on_batch(part.batch, 1),
    ):
        # All processes use the times of the first, so that they try the same settings.
        found = measuring.measure(choices, lambda each: processes.numbers([trial(each)])[0])
    observer.note(
        f"measured on a batch, in target tokens a second: {found.speeds(part.target_tokens)}"
    )
    observer.note(f"chose {found.chosen}: a less simple one must be clearly quicker")
    return found.chosen, part.target_tokens / min(found.seconds[found.chosen])
