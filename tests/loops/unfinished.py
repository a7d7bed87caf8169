"""Loops that are not compiled until a test says so."""

from __future__ import annotations

from unittest.mock import Mock

from regard.loops import preparing
from regard.loops.preparing import Preparation


class Unfinished(Preparation):
    """Loops that another process compiles, for as long as a test wants."""

    def _start(self) -> None:
        self._process = Mock(poll=lambda: None)
        preparing._announce()

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def finish(self) -> None:
        self._ready = True
