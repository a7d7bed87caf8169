"""Threads, forks and memory."""

from __future__ import annotations

import os
import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from tests.peaks import growth, measured
from torch import Tensor

from regard.attention.kernels.additive.cpu import calls
from regard.attention.kernels.additive.cpu.operator import additive
from regard.loops import cache, places
from regard.loops import threads as pool


def _problem(seed: int) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    return torch.randn(3, 40, 16), torch.randn(3, 50, 16), torch.randn(16), torch.randn(3, 50, 8)


def _read(inputs: tuple[Tensor, ...]) -> Tensor:
    return additive(*inputs, *(None,) * 6, 0.0, 1.0)[0]


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_workers", lambda problem: 3)


@pytest.mark.usefixtures("two_threads")
def test_many_threads_may_call_at_once() -> None:
    problems = [_problem(seed) for seed in range(24)]
    alone = [_read(problem) for problem in problems]
    with ThreadPoolExecutor(6) as callers:
        together = list(callers.map(_read, problems * 4))
    assert all(torch.equal(got, alone[k % 24]) for k, got in enumerate(together))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_may_call_after_a_fork() -> None:
    problem = _problem(0)
    expected = _read(problem)  # the threads run already
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(_read(problem), expected) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(_read(problem), expected)


def test_an_error_in_a_lent_part_is_raised() -> None:
    def fail() -> None:
        raise ArithmeticError("lent")

    with pytest.raises(ArithmeticError, match="lent"):
        pool.run([lambda: None, fail])


@pytest.mark.parametrize(("items", "workers"), [(1, 4), (7, 3), (8, 8), (100, 7)])
def test_work_is_split_evenly(items: int, workers: int) -> None:
    runs = pool.split(items, workers)
    assert [n for start, stop in runs for n in range(start, stop)] == list(range(items))
    lengths = [stop - start for start, stop in runs]
    assert max(lengths) - min(lengths) <= 1


def test_code_of_sources_long_gone_is_removed_when_new_code_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache._begin.cache_clear()
    old, recent, foreign = (cache.folder() / name for name in ("0a" * 8, "1b" * 8, "mine"))
    for place in (old, recent, foreign):
        place.mkdir(parents=True)
        (place / "code.nbi").touch()
    for place in (old, foreign):
        os.utime(place, (0, 0))

    def kernel() -> None: ...

    place = cache._Place.from_function(kernel, cache.__file__)
    assert Path(place.get_cache_path()).is_dir()
    assert not old.exists()
    assert recent.exists()
    assert foreign.exists()
    os.utime(recent, (0, 0))  # whoever has its code in memory goes on, and keeps what it can
    files = cache._Files(str(recent), "kernel", "stamp")
    cache.remove_unused(cache.folder())
    assert not recent.exists()
    assert files.load("single") is None
    cache._begin.cache_clear()


def test_two_processes_never_take_each_others_code(tmp_path: Path) -> None:
    item, other_files = (cache._Files(str(tmp_path), "kernel", "stamp") for _ in range(2))
    empty = item._load_index()
    other_files.save("double", "code for double")
    item._load_index = lambda: empty  # it had looked before the other wrote
    item.save("single", "code for single")
    del item._load_index
    for files in (item, other_files):
        assert files.load("single") == "code for single"
        assert files.load("double") in (None, "code for double")


def test_half_a_file_or_a_changed_one_is_compiled_anew(tmp_path: Path) -> None:
    files, dice = cache._Files(str(tmp_path), "kernel", "stamp"), random.Random(1)
    for ending in ("nbc", "nbi"):
        files.save("single", "code")
        (path,) = tmp_path.glob(f"*.{ending}")
        whole_content = path.read_bytes()
        cut = [whole_content[: len(whole_content) * part // 9] for part in range(9)]
        for content in [*cut, *(_flipped(whole_content, dice) for _ in range(50))]:
            path.write_bytes(content)
            message = f"^{tmp_path}: {path.name} is corrupted or truncated"
            with pytest.warns(RuntimeWarning, match=message):
                assert files.load("single") is None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            files.save("single", "code")
        assert files.load("single") == "code"


def _flipped(content: bytes, dice: random.Random) -> bytes:
    flipped = bytearray(content)
    flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


def test_machine_code_that_was_changed_is_compiled_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache._begin.cache_clear()

    def kernel(number: float) -> float:
        return 2 * number + 1

    def compiled() -> Any:
        return cache.keep(numba.njit(kernel))

    assert compiled()(3.0) == 7
    stored_files = compiled()
    assert stored_files(3.0) == 7
    assert stored_files.stats.cache_hits
    dice = random.Random(2)
    for path in (*tmp_path.rglob("*.nbc"), *tmp_path.rglob("*.nbi")):
        path.write_bytes(_flipped(path.read_bytes(), dice))
        compiled_again = compiled()
        with pytest.warns(RuntimeWarning, match="is compiled again"):
            assert compiled_again(3.0) == 7
        assert not compiled_again.stats.cache_hits
        mended = compiled()
        assert mended(3.0) == 7
        assert mended.stats.cache_hits
    cache._begin.cache_clear()


def test_a_full_disk_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*given: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache.caching.FunctionCache, "save_overload", full)
    cache._Cache(_problem).save_overload(None, None)


def test_compiled_kernels_are_kept_in_the_persons_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "regard" / "kernels"
    place = cache._Place.from_function(_read, __file__)
    assert place is not None
    assert place.get_cache_path().startswith(str(tmp_path))
    assert len(places.stamp(Path(__file__))) == 16


def test_without_a_folder_to_write_in_kernels_are_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(cache, "folder", lambda: blocked)
    assert cache._Place.from_function(_read, __file__) is None


@measured
def test_memory_does_not_grow_as_queries_times_keys() -> None:
    def run(length: int) -> None:
        a, c, v = (torch.randn(1, length, width).requires_grad_() for width in (16, 16, 8))
        weight = torch.randn(16, requires_grad=True)
        additive(a, c, weight, v, *(None,) * 6, 0.0, 1.0)[0].sum().backward()

    grown = growth(lambda: run(64), lambda: run(4096))
    assert grown < 4096 * 4096 * 4 / 2**20, "as much as the matrix of scores"
    assert grown < 50
