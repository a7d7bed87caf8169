"""SIGINT, SIGTERM and SIGHUP: the first one saves and ends the work, the second one ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from regard.errors import ConfigurationError

_SHOW_CURSOR = "\x1b[?25h"
_HANG_UP = getattr(signal, "SIGHUP", None)  # Windows has none
_ENDING = [each for each in (signal.SIGINT, signal.SIGTERM, _HANG_UP) if each is not None]


class Interrupted(BaseException):
    """A signal came while there was nothing to save."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


def exit_code(fault: BaseException) -> int:
    """The exit code of a command that ends with a fault."""
    if isinstance(fault, KeyboardInterrupt):
        return 130
    if isinstance(fault, Interrupted):
        return 128 + fault.number
    return 2 if isinstance(fault, ConfigurationError) else 1


class Signals:
    """Listens to SIGINT, SIGTERM and SIGHUP while the block runs.

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
        """Whether a signal has come."""
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
