"""Keeping memory: in a process of its own, as it cannot be taken back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
from regard.translation.training import memory
print(memory.keep_freed())
import torch
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def run(**environment: str) -> list[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC", "GLIBC"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for the C library of GNU")
def test_freed_memory_is_used_again_without_page_faults():
    kept, faults = run()
    assert kept == "True"
    assert int(faults) < 1000  # without it: 20 times 16 MB, page by page
    kept, _ = run(MALLOC_TOP_PAD_="0")
    assert kept == "False"
