"""Several processes of one training, as children of the test, which need not import torch again."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed import FileStore

from regard.translation.training.processes import Processes

# Machines may be slow and busy: only ranks that hang take so long.
PATIENCE = 300
forked = pytest.mark.skipif(torch.cuda.is_available(), reason="torch with a GPU cannot be forked")


def together(size: int, folder: Path, work: Callable[[Processes], None]) -> list[str]:
    """Do the same work in `size` processes; what each of them raised, empty where it ended well."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=_rank, args=(rank, size, folder, work), daemon=True)
        for rank in range(size)
    ]
    for child in children:
        child.start()
    faults = []
    for rank, child in enumerate(children):
        child.join(PATIENCE)
        hangs = child.is_alive()
        if hangs:
            child.kill()
        assert not hangs, f"rank {rank} went on for ever"
        printed_folder = folder / f"fault-{rank}"
        faults.append(
            printed_folder.read_text() if printed_folder.exists() else str(child.exitcode or "")
        )
    return faults


def _rank(rank: int, size: int, folder: Path, work: Callable[[Processes], None]) -> None:
    code = 0
    try:
        torch.set_num_threads(1)
        with Processes("cpu", FileStore(str(folder / "store"), size), rank, size) as processes:
            work(processes)
    except BaseException as fault:
        known_text = str(fault) if type(fault).__module__.startswith("regard") else ""
        (folder / f"fault-{rank}").write_text(known_text or traceback.format_exc())
        code = 1
    os._exit(code)
