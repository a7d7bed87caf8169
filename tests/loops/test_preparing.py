"""Loops are compiled once, by one process, whatever happens to it; nobody waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import TestCase

import pytest

from regard.loops import places
from regard.loops.preparing import Preparation

# A module whose loops are compiled: each time, a line is added to a file.
MODULE = """
import time
from pathlib import Path
def compile_loops():
    with (Path(__file__).parent / "compiled.txt").open("a") as file:
        file.write("once\\n")
    time.sleep({seconds})
"""
MAKE = """
import sys
from pathlib import Path
from regard.loops import places
from regard.loops.preparing import Preparation
places.PACKAGE = Path(sys.argv[1])
sys.path.insert(0, sys.argv[1])
Preparation("some_loops").make()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of loops, and an empty cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    (tmp_path / "some_loops.py").write_text(MODULE.format(seconds=0.3))
    return tmp_path


def make(package: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MAKE, package])


def compiled(package: Path) -> int:
    """How many times the loops were compiled."""
    path = package / "compiled.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_of_two_processes_that_start_together_one_compiles(package):
    together = [make(package), make(package)]
    assert [process.wait() for process in together] == [0, 0]
    assert compiled(package) == 1
    assert Preparation("some_loops").ready()
    assert not list(package.rglob("*.lock"))


def test_a_process_that_is_killed_leaves_a_cache_that_another_completes(package):
    (package / "some_loops.py").write_text(MODULE.format(seconds=60))
    process = make(package)
    while not compiled(package):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(package.rglob("ready-*[0-9a-f]"))
    (package / "some_loops.py").write_text(MODULE.format(seconds=0))
    assert make(package).wait() == 0
    assert compiled(package) == 2
    assert Preparation("some_loops").ready()


def test_another_processor_and_a_changed_source_are_compiled_for_anew(package, monkeypatch):
    assert make(package).wait() == 0
    monkeypatch.setattr(Preparation, "_start", lambda self: None)
    assert Preparation("some_loops").ready()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert not Preparation("some_loops").ready()
    monkeypatch.delenv("NUMBA_CPU_NAME")
    (package / "some_loops.py").write_text("# changed")
    places.stamp.cache_clear()
    assert not Preparation("some_loops").ready()
    places.stamp.cache_clear()


def test_another_version_of_python_compiles_for_itself(package, monkeypatch):
    assert make(package).wait() == 0
    monkeypatch.setattr(Preparation, "_start", lambda self: None)
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
    assert not Preparation("some_loops").ready()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_waits_for_the_process_that_was_started_before_it(package, monkeypatch):
    (package / "sleep").write_text("#!/bin/sh\nexec sleep 60\n")
    (package / "sleep").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(package / "sleep"))
    preparation = Preparation("some_loops")
    assert not preparation.ready()
    child = os.fork()
    if child == 0:
        os._exit(preparation.ready())
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        preparation._process.kill()
        preparation._process.wait()


@pytest.mark.parametrize("executable", ["nowhere", "", None])
def test_where_no_process_can_be_started_the_loops_are_compiled_here(
    package, monkeypatch, executable
):
    monkeypatch.setattr(sys, "executable", executable)
    with TestCase().assertNoLogs("regard.loops", level="INFO"):  # nothing happens in the background
        assert Preparation("some_loops").ready()


def test_a_process_that_fails_is_not_waited_for(package, monkeypatch):
    (package / "some_loops.py").write_text("def compile_loops(): raise OSError")
    monkeypatch.setattr(sys, "executable", "false")
    preparation = Preparation("some_loops")
    preparation.wait()
    assert not list(package.rglob("ready-*"))
