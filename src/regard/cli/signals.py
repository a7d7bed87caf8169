"""How a command ends: signals, exit codes, and one report of a failure for all processes of torchrun."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

import typer

from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.training.processes import Processes

_SHOW_CURSOR = "\x1b[?25h"
_HANG_UP = getattr(signal, "SIGHUP", None)  # Windows has none
_ENDING = [each for each in (signal.SIGINT, signal.SIGTERM, _HANG_UP) if each is not None]


class Interrupted(BaseException):
    """A signal came while there was nothing to save."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


def exit_code(fault: BaseException) -> int:
    if isinstance(fault, KeyboardInterrupt):
        return 130
    if isinstance(fault, Interrupted):
        return 128 + fault.number
    return 2 if isinstance(fault, ConfigurationError) else 1


class Signals:
    """Listens to SIGINT, SIGTERM and SIGHUP while the block runs: the first one ends the work, the second the process.

    Outside `saving` a signal ends the work at once (`Interrupted`). Inside, `stop` reports the first one, and the
    second one ends the process at once, unless the process is `patient`: torchrun may send one Ctrl-C several
    times, and kills processes that do not end.
    """

    def __init__(self) -> None:
        self.received = 0
        self.patient = False
        self._saving = False
        self._before: dict[int, signal.Handlers | object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in _ENDING:
            # Under nohup a hang-up is no reason to stop. A shell's background job ignores SIGINT, too,
            # but a SIGINT sent by `kill` is meant.
            if number == _HANG_UP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *fault: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A block in which the first signal waits for a checkpoint."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False

    def stop(self) -> bool:
        return self.received != 0

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.received and self.patient:
            return
        if self.received:
            if sys.stdout is not None and sys.stdout.isatty():
                os.write(1, _SHOW_CURSOR.encode())
            os._exit(128 + number)
        self.received = number
        if not self._saving:
            raise Interrupted(number)


@contextmanager
def first_failure_only(processes: Processes) -> Iterator[None]:
    """Only the process that failed first reports the failure; the others end silently."""
    from regard.translation.training.processes import ended_elsewhere

    try:
        yield
    except typer.Exit:
        raise
    except BaseException as fault:
        if not processes.first_to_fail():
            raise typer.Exit(exit_code(fault)) from None
        ended = ended_elsewhere(fault) if processes.size > 1 else None
        if ended is not None:
            raise ended from None
        raise
