"""The arithmetic and the number of threads of a training: measured for a new one, kept for a resumed one.

Another program may slow down any trial. So the trials of all settings alternate, and a setting is preferred to a
simpler one only if it was clearly quicker in nearly every turn. A busy machine gets float32 and few threads.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from regard.translation.training.epochs import Epochs, Part
from regard.translation.training.progress import Progress
from regard.translation.training.reporting import Observer
from regard.translation.training.step import Learner

PRECISIONS = ("float32", "medium", "bfloat16")
# A setting is clearly quicker than another if it takes less than this share of its time.
CLEARLY = 0.8
# A limit for each turn: a setting that takes more than this many times as long as the quickest is not tried again.
HOPELESS = (4.0, 2.0, 2.0, 2.0, 2.0)
# A training is far slower than measured if this many reports in a row are below this share of the speed.
FAR = 1 / 3
REPORTS = 3


class Setting(NamedTuple):
    """An arithmetic and a number of threads."""

    precision: str
    threads: int

    def __str__(self) -> str:
        """
        >>> str(Setting("float32", 1)), str(Setting("bfloat16", 4))
        ('float32 with 1 thread', 'bfloat16 with 4 threads')
        """
        return f"{self.precision} with {self.threads} thread" + ("s" if self.threads > 1 else "")


SIMPLEST = Setting("float32", 1)


def settle(progress: Progress, learner: Learner, epochs: Epochs, observer: Observer) -> Setting:
    """Choose precision and threads; keep them in `progress`, and set torch's threads."""
    processes, settings = learner.processes, learner.settings
    threads_here = int(processes.numbers([torch.get_num_threads()])[0])
    if progress.precision:
        old = Setting(progress.precision, progress.threads or settings.threads or threads_here)
        # A configuration may now give another setting, and fewer threads may be left.
        choice = Setting(
            old.precision if settings.precision == "auto" else settings.precision,
            settings.threads or min(old.threads, threads_here),
        )
        if choice != old:
            observer.note(
                f"from step {progress.step + 1} on {choice}, before {old}: "
                "the weights will have other bits than without this change"
            )
            progress.measured = 0.0
    else:
        fixed = settings.threads or (0 if processes.device.type == "cpu" else threads_here)
        choices = candidates(settings.precision, fixed, threads_here)
        choice = choices[0]
        if len(choices) > 1:
            observer.doing(f"trying {len(choices)} precisions and numbers of threads")
            choice, progress.measured = _measured(choices, learner, epochs, observer)
    progress.precision, progress.threads = choice
    torch.set_num_threads(progress.threads)
    return choice


def candidates(precision: str, threads: int, most_threads: int) -> list[Setting]:
    """The settings that a configuration leaves open ("auto" precision, 0 threads), with the simplest one first.

    >>> [str(each) for each in candidates("float32", 0, 6)]
    ['float32 with 1 thread', 'float32 with 4 threads', 'float32 with 6 threads']
    """
    precisions = PRECISIONS if precision == "auto" else (precision,)
    powers = (4**exponent for exponent in range(6))
    counts = (
        [threads]
        if threads
        else [*(count for count in powers if count < most_threads), most_threads]
    )
    return [Setting(name, count) for name in precisions for count in counts]


def _measured(
    choices: list[Setting], learner: Learner, epochs: Epochs, observer: Observer
) -> tuple[Setting, float]:
    """The best setting for one large batch, and its target tokens a second. No random number is used up."""
    batch, processes = epochs.largest(), learner.processes
    learner.model.train()
    with torch.random.fork_rng([processes.device] if processes.device.type == "cuda" else []):
        # All processes use the times of the first, so that they try the same settings.
        fastest_setting, seconds = fastest(
            choices, lambda setting: processes.numbers([trial(learner, batch, setting)])[0]
        )
    speeds = {setting: batch.target_tokens / min(took) for setting, took in seconds.items()}
    speeds_text = ", ".join(f"{setting} {speed:,.0f}" for setting, speed in speeds.items())
    observer.note(f"measured on a batch, in target tokens a second: {speeds_text}")
    observer.note(f"chose {fastest_setting}: a less simple one must be clearly quicker")
    return fastest_setting, speeds[fastest_setting]


def trial(learner: Learner, batch: Part, setting: Setting) -> float:
    """The seconds in which a setting computes the gradients of a batch. Sets torch's threads."""
    torch.set_num_threads(setting.threads)
    started = time.perf_counter()
    learner.gradients([batch], batch.target_tokens, 1, setting.precision)
    learner.optimiser.zero_grad(set_to_none=True)
    if learner.processes.device.type == "cuda":
        torch.cuda.synchronize(learner.processes.device)
    return time.perf_counter() - started


def fastest(
    choices: Sequence[Setting], trial: Callable[[Setting], float]
) -> tuple[Setting, dict[Setting, list[float]]]:
    """Try settings in turns, the simplest one first: the chosen one, and the seconds of all trials of each.

    `trial` computes the gradients of one batch with a setting, and returns the seconds it took.
    """
    simplest = choices[0]
    trial(simplest)  # compiles and allocates
    seconds: dict[Setting, list[float]] = {setting: [] for setting in choices}
    tried = set(choices)
    for hopeless in HOPELESS:
        for setting in choices:
            if setting not in tried:
                continue
            seconds[setting].append(trial(setting))
            took, best = min(seconds[setting]), min(map(min, filter(None, seconds.values())))
            if setting != simplest and took > hopeless * best:
                tried.remove(setting)
            same = setting.precision == simplest.precision
            if same and took > hopeless * min(seconds[simplest]):
                # This number of threads is as slow in another arithmetic.
                tried = {
                    tried_setting
                    for tried_setting in tried
                    if tried_setting.threads != setting.threads
                }
    best_setting = simplest
    for setting in filter(tried.__contains__, choices):
        if _clearly_quicker(seconds[setting], seconds[best_setting]):
            best_setting = setting
    return best_setting, {setting: took for setting, took in seconds.items() if took}


def _clearly_quicker(ours: list[float], theirs: list[float]) -> bool:
    """Whether the first was clearly quicker in all turns but one, and in the best turn."""
    quicker = sum(own < CLEARLY * other for own, other in zip(ours, theirs, strict=True))
    return quicker >= len(ours) - 1 and min(ours) < CLEARLY * min(theirs)


class SlowWatch:
    """Notices when a training stays far slower than expected, in target tokens a second; 0 if it was not measured."""

    def __init__(self, setting: Setting, expected: float) -> None:
        self._setting, self._expected = setting, expected
        self._slow, self._told = 0, False

    def advice(self, step: int, tokens_per_second: float) -> str | None:
        """After the last of `REPORTS` slow reports in a row, once: the speed and the options that change it."""
        self._slow = self._slow + 1 if tokens_per_second < FAR * self._expected else 0
        if self._told or self._slow < REPORTS:
            return None
        self._told = True
        message = (
            f"step {step}: {tokens_per_second:,.0f} tokens/s, but {self._expected:,.0f} were measured with "
            f"{self._setting}: other programs may be using the processors"
        )
        if self._setting == SIMPLEST:
            return message
        return (
            f"{message}; to change to {SIMPLEST}, stop with Ctrl-C and add to --resume: "
            "--set training.precision=float32 --set training.threads=1"
        )
