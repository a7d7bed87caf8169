"""Freed memory stays with the process of a training."""

import platform
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from regard.translation.training import memory


def faults(keep: bool) -> int:
    """The pages that a large tensor asks the system for, in a child of this process."""
    with ProcessPoolExecutor(1, get_context("fork")) as child:
        return child.submit(_fewest_faults, keep).result()


def _fewest_faults(keep: bool) -> int:
    if keep:
        memory.keep()
    return min(_faults() for _ in range(6))


def _faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(2**24).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with a GPU cannot be forked")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_a_second_large_tensor_gets_the_memory_of_the_first():
    # 64 MB are 16,384 pages of 4 KB, or 32 of 2 MB where the system gives these.
    assert 4 * faults(keep=True) < faults(keep=False)


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr("ctypes.CDLL", None)
    memory.keep()
