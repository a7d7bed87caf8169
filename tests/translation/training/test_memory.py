"""Freed memory stays with the process of a training."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
{}
def minor():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def faults():
    before = minor()
    torch.empty(2**24).fill_(1.0)
    return minor() - before
faults()
print(min(faults() for _ in range(5)))
"""
KEEP = "from regard.translation.training import memory; memory.keep()"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_a_second_large_tensor_gets_the_memory_of_the_first():
    def run(first_size: str) -> int:
        command = [sys.executable, "-c", FAULTS.format(first_size)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    # 64 MB are 16,384 pages of 4 KB, or 32 of 2 MB where the system gives these.
    assert 4 * run(KEEP) < run("")


def test_other_c_libraries_are_left_alone(monkeypatch):
    from regard.translation.training import memory

    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr("ctypes.CDLL", None)
    memory.keep()
