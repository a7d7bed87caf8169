"""What every test stands on: one hypothesis profile, one thread, a plain terminal, the data."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import TypeCheckError, install_import_hook
from tests.ranks import on_forks, on_ranks  # noqa: F401
from tests.seconds import Seconds

# The same examples on every machine and every run; hypothesis has a profile of its own for CI=true,
# so ours is loaded by name. A slow machine is no failure: no deadline, no check of the speed.
settings.register_profile(
    "regard",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("regard")

# Triton reads this once, when it is first imported: without a GPU its kernels run in Python.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# As the person who runs the tests has set it; journeys work without.
CORPORA = os.environ.get("REGARD_DATA")

# Packages whose annotated shapes `pytest --shapes` checks at each call; the kernels are compiled.
SHAPED = [
    f"regard.attention.{name}"
    for name in "attend blocks caches heads looks masks normalisers parts positions ranks scores".split()
]

# What `-m 'not slow'` leaves out, written by `.ci/durations`: tests, and places all of whose tests are slow.
SLOW = (Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines()
SLOW_TESTS, SLOW_PLACES = set(SLOW), tuple(line for line in SLOW if "::" not in line)

# A child that collects garbage would look at all that the tests before it have loaded, and so copy it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gc.freeze)

# Sums in one order: with more threads the last bits, and so ties, would depend on the machine.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shapes", action="store_true", help="check annotated shapes at each call")
    parser.addoption(
        "--seconds", type=Path, help="add the processor time of each test to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--shapes"):
        install_import_hook(SHAPED, "beartype.beartype")
    if seconds := config.getoption("--seconds"):
        config.pluginmanager.register(Seconds(seconds, hasattr(config, "workerinput")))


def pytest_collection_finish() -> None:
    """What was collected stays: no collection of garbage looks through it again, and no fork copies it."""
    gc.collect()
    gc.freeze()


# Tests that start many children of this process, which grows from file to file: each copies its tables of memory.
FORKING = (
    "tests/journeys",
    "tests/documentation/test_blocks",
    "tests/attention/kernels/test_linear_memory",
    "tests/cli",
    "tests/translation/training",
    "tests/memory",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what starts many children first, and mark what is slow."""
    items.sort(key=lambda item: not item.nodeid.startswith(FORKING))
    for item in items:
        if item.nodeid in SLOW_TESTS or item.nodeid.startswith(SLOW_PLACES):
            item.add_marker("slow")


def pytest_runtest_setup() -> None:
    """Let Triton's interpreter change Triton's language for good, once it is there, not in each call of a kernel."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    change = getattr(interpreter, "_patch_lang", None)
    if change is None or hasattr(change, "cache"):
        return

    def change_once(kernel: Any) -> Any:
        languages = {id(interpreter.tl), id(interpreter.tl.core)} & set(
            map(id, kernel.__globals__.values())
        )
        if not languages <= change_once.cache:
            change_once.cache |= languages
            change(kernel)
        return interpreter._LangPatchScope()

    change_once.cache = set()
    interpreter._patch_lang = change_once
    # It would add, subtract and multiply whole numbers in 64 bits as well, for an assertion that it does not make.
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Iterator[None]:
    """With `--shapes`, skip tests of refused arguments: the check refuses them first, in its words."""
    if not item.config.getoption("--shapes"):
        return (yield)
    source = inspect.getsource(item.function)
    if item.get_closest_marker("unannotated"):
        pytest.skip("the test passes arguments that annotations do not name")
    if "torch.compile" in source or "torch.jit" in source:
        pytest.skip("the check of shapes cannot be traced")
    try:
        return (yield)
    except (TypeCheckError, AssertionError) as error:
        if "pytest.raises" in source and "Type-check error" in str(error):
            pytest.skip("the test passes wrong arguments on purpose")
        raise


@pytest.fixture(scope="session", autouse=True)
def plain_surroundings() -> Iterator[None]:
    """No test sees the terminal, the colours or the settings of the person who runs it."""
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("COLUMNS", "100")
        surroundings.setenv("LINES", "40")
        surroundings.setenv("NO_COLOR", "1")
        surroundings.setenv("TERM", "dumb")
        surroundings.setenv("MPLBACKEND", "Agg")
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "REGARD_KERNEL"):
            surroundings.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_power_cut() -> Iterator[None]:
    """No test cuts the power, and a busy disk takes its time: what is forced to the disk need only be open."""
    with pytest.MonkeyPatch.context() as disk:
        for name in {"fsync", "fdatasync"} & {*dir(os)}:
            disk.setattr(os, name, os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_loops() -> None:
    """All loops are compiled before the tests; until then layers would search, and other kernels attend."""
    from regard.attention.kernels.additive import kernels
    from regard.loops.availability import are_compiled  # here: --shapes watches the first import
    from regard.translation.engines.engine import LOOPS

    logging.getLogger("regard.loops").setLevel(logging.WARNING)
    if are_compiled():
        preparations = LOOPS, *kernels.LOOPS.values()
        for loops in preparations:
            loops.ready()  # all begin at once, each in a process of its own
        for loops in preparations:
            loops.wait()


@pytest.fixture
def run_async() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """asyncio.run in a thread of its own: after tests in a browser this one has a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda coroutine: thread.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real corpora; a test that needs it is skipped where REGARD_DATA names none."""
    if not CORPORA:
        pytest.skip("real corpora: set REGARD_DATA to the folder that holds them")
    folder = Path(CORPORA)
    if not folder.is_dir():
        pytest.skip("real corpora: REGARD_DATA names a folder that does not exist")
    return folder
