"""How far the memory of a process grows, measured in a child of the process of the tests, which has torch already."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

# Only Linux forgets a peak, and a process with threads for a GPU cannot be forked.
measured = pytest.mark.skipif(
    sys.platform != "linux" or torch.cuda.is_available(), reason="no fork that forgets its peak"
)


def growth(warm_up: Callable[[], object], work: Callable[[], object]) -> float:
    """Megabytes at the peak of `work` over those after `warm_up`, which loads and compiles what both need."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(_grown(warm_up, work)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with open(reading, encoding="ascii") as answer:
        grown = answer.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return float(grown)


def _grown(warm_up: Callable[[], object], work: Callable[[], object]) -> float:
    torch.set_num_threads(1)
    warm_up()
    gc.collect()
    # What the allocator keeps of the tests before would hide as much of the growth.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _megabytes("VmRSS")
    work()
    return _megabytes("VmHWM") - before


def _megabytes(kind: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(kind))
