"""Chooses the arithmetic and the number of threads of a training by timing them on the machine.

Another program may slow down any trial. So the trials of all settings alternate, and a setting is preferred to a
simpler one only if it was clearly quicker in nearly every turn. A busy machine gets float32 and few threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.translation.training.precision import PRECISIONS, arithmetic, products

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

    def within(self, precision: str, threads: int, most: int) -> Setting:
        """This setting, changed where a configuration now gives another one or fewer threads are left.

        >>> str(Setting("bfloat16", 4).within("auto", 0, most=2))
        'bfloat16 with 2 threads'
        """
        return Setting(
            self.precision if precision == "auto" else precision,
            threads or min(self.threads, most),
        )


SIMPLEST = Setting("float32", 1)


class Measured(NamedTuple):
    """The chosen setting, and the seconds of all trials of each setting."""

    chosen: Setting
    seconds: dict[Setting, list[float]]

    def speeds(self, tokens: int) -> str:
        """The best speed of each setting, for a batch of this many target tokens.

        >>> Measured(Setting("float32", 1), {Setting("float32", 1): [0.5, 0.25]}).speeds(1000)
        'float32 with 1 thread 4,000'
        """
        return ", ".join(f"{each} {tokens / min(took):,.0f}" for each, took in self.seconds.items())


def settings(precision: str, threads: int, most: int) -> list[Setting]:
    """The settings that a configuration leaves open, the simplest one first.

    Args:
        precision: `training.precision`; "auto" leaves it open.
        threads: `training.threads`; 0 leaves it open.
        most: the largest number of threads that may be chosen.

    >>> [str(each) for each in settings("float32", 0, 6)]
    ['float32 with 1 thread', 'float32 with 4 threads', 'float32 with 6 threads']
    """
    precisions = PRECISIONS if precision == "auto" else (precision,)
    powers = (4**exponent for exponent in range(6))
    counts = [threads] if threads else [*(count for count in powers if count < most), most]
    return [Setting(name, count) for name in precisions for count in counts]


def measure(open_settings: Sequence[Setting], trial: Callable[[Setting], float]) -> Measured:
    """Try settings in turns, and choose one.

    Args:
        open_settings: the simplest one first.
        trial: computes the gradients of one batch with a setting; returns the seconds it took.
    """
    simplest = open_settings[0]
    trial(simplest)  # compiles and allocates
    seconds: dict[Setting, list[float]] = {each: [] for each in open_settings}
    tried = set(open_settings)
    for hopeless in HOPELESS:
        for each in open_settings:
            if each not in tried:
                continue
            seconds[each].append(trial(each))
            took, best = min(seconds[each]), min(map(min, filter(None, seconds.values())))
            if each != simplest and took > hopeless * best:
                tried.remove(each)
            same = each.precision == simplest.precision
            if same and took > hopeless * min(seconds[simplest]):
                # This number of threads is as slow in another arithmetic.
                tried = {other for other in tried if other.threads != each.threads}
    chosen = simplest
    for each in filter(tried.__contains__, open_settings):
        if _clearly_quicker(seconds[each], seconds[chosen]):
            chosen = each
    return Measured(chosen, {each: took for each, took in seconds.items() if took})


def _clearly_quicker(ours: list[float], theirs: list[float]) -> bool:
    """Whether the first was clearly quicker in all turns but one, and in the best turn."""
    quicker = sum(own < CLEARLY * other for own, other in zip(ours, theirs, strict=True))
    return quicker >= len(ours) - 1 and min(ours) < CLEARLY * min(theirs)


class SlowWatch:
    """Notices when a training stays far slower than measured.

    Args:
        setting: the setting of the training.
        expected: its measured speed in target tokens a second; 0 if it was not measured.
    """

    def __init__(self, setting: Setting = SIMPLEST, expected: float = 0.0) -> None:
        self._setting, self._expected = setting, expected
        self._slow, self._told = 0, False

    def notices(self, tokens_per_second: float) -> bool:
        """Whether this report is the last of `REPORTS` slow ones in a row. True only once."""
        if self._told:
            return False
        self._slow = self._slow + 1 if tokens_per_second < FAR * self._expected else 0
        self._told = self._slow == REPORTS
        return self._told

    def advice(self, step: int, tokens_per_second: float) -> str:
        """A message with the speed, and with the options that change the setting."""
        said = (
            f"step {step}: {tokens_per_second:,.0f} tokens/s, but {self._expected:,.0f} were measured with "
            f"{self._setting}: other programs may be using the processors"
        )
        if self._setting == SIMPLEST:
            return said
        return (
            f"{said}; to change to {SIMPLEST}, stop with Ctrl-C and add to --resume: "
            "--set training.precision=float32 --set training.threads=1"
        )


def timed(
    forward: Callable[[], Tensor],
    after: Callable[[], object],
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[Setting], float]:
    """A trial for `measure`: times a loss, its gradients and `after`. It sets torch's threads."""

    def trial(setting: Setting) -> float:
        torch.set_num_threads(setting.threads)
        started = clock()
        with products(setting.precision):
            with arithmetic(setting.precision, device):
                loss = forward()
            loss.backward()
            after()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock() - started

    return trial
