"""Loops that another process compiles, once for a processor, while this one computes without them.

Compiling the loops of a search takes some twenty seconds, and a first translation with the layers of the model one;
those of additive attention take as long in each precision. The other process has a lower priority and lives on when
this one ends, so that the next one finds the code.
"""

import hashlib
import importlib
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from regard.files import HeldError, locked
from regard.loops import places

_LOG = logging.getLogger(__name__)
_WAIT = 0.1  # seconds between two looks at a lock


class Preparation:
    """The loops that `compile_loops` of a module compiles; it is called with `arguments`.

    A marker in the cache says that all of them are there, for this processor and this version of their sources. It is
    written last: a process that is killed leaves what it has compiled, and no marker.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._module, self._arguments = module, arguments
        self._file = places.PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
        self._ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = 0  # the process id of the one that started `_process`

    def ready(self) -> bool:
        """Whether the loops can be called now without long compilation; if not, another process compiles them."""
        if not self._ready:
            try:
                marker = self._marker
            except (OSError, RuntimeError):  # nothing can be kept: compile here
                self._ready = True
                return True
            self._ready = marker.exists()
            with suppress(OSError):  # there is none, or it is another user's
                os.utime(marker.parent)  # folders that are used are not removed
        if self._ready:
            return True
        if self._process is None:
            self._start()
        elif self._starter == os.getpid():  # a fork cannot know whether it has ended
            # When it has ended, this process compiles what is missing.
            self._ready = self._process.poll() is not None
        return self._ready

    def wait(self) -> None:
        """Return when the loops are ready, where all calls must be served alike: trainings, measurements and tests."""
        while not self.ready():
            time.sleep(_WAIT)

    def make(self) -> None:
        """Compile, and mark the loops as ready; of several processes only one compiles."""
        marker = self._marker
        marker.parent.mkdir(parents=True, exist_ok=True)
        if hasattr(os, "nice"):  # not on Windows
            os.nice(5)  # more would wait for ever on a busy machine
        while not marker.exists():
            with suppress(HeldError), locked(marker.with_suffix(".lock")):
                if not marker.exists():
                    importlib.import_module(self._module).compile_loops(*self._arguments)
                    marker.touch()
                return
            time.sleep(_WAIT)

    @property
    def folder(self) -> Path:
        """Where the marker is. Raises `OSError` where the sources cannot be read, `RuntimeError` without a home."""
        return places.folder() / places.stamp(self._file)

    @cached_property
    def _marker(self) -> Path:
        # numba keeps the code of each version of Python apart, and so does this.
        python = str(sys.implementation.cache_tag), getattr(sys, "abiflags", "")
        names = "\n".join((*places.processor(), *python, *self._arguments))
        return self.folder / f"ready-{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def _start(self) -> None:
        paths = os.pathsep.join(
            [str(places.PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "regard.loops.preparing",
                    self._module,
                    *self._arguments,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # as above, on Windows
            )
        except (OSError, ValueError, TypeError):  # no process can be started: compile here
            self._ready = True
            return
        self._starter = os.getpid()
        _announce()


def _announce() -> None:
    _LOG.info(
        "machine code is being compiled for this processor, once and in the background; "
        "until it is ready, calls take longer"
    )


if __name__ == "__main__":
    Preparation(*sys.argv[1:]).make()
