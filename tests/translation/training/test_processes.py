"""Several processes: what they add up and agree on, and what is heard when one of them ends."""

from __future__ import annotations

import os
import signal

import torch
from tests.translation.training.ranks import forked, together

from regard.translation.training.processes import Processes


def exchange(processes: Processes) -> None:
    rank, size = processes.rank, processes.size
    assert processes.is_first == (rank == 0)
    large, small = torch.full((3, 1 << 12), rank + 1.0), torch.tensor(2.0 * rank)
    processes.sum([small, large, torch.empty(0)])
    assert float(small) == 2.0
    assert bool((large == 3).all())
    assert processes.total(0.5 + rank) == 2.0
    assert processes.any(rank == 1)
    assert not processes.any(False)
    third = 1 / 3 + rank
    assert processes.numbers([third, 7]) == [1 / 3, 7]
    assert processes.content(b"\0\xffabc" if rank == 0 else b"") == b"\0\xffabc"
    assert processes.content(b"") == b""
    seeds = {processes.seed(1, step) for step in range(50)}
    processes.rank = 1 - rank
    assert len(seeds | {processes.seed(1, step) for step in range(50)}) == 100
    processes.rank = rank
    processes.wait()
    assert (processes.total(processes.first_to_fail()), size) == (1.0, 2)


@forked
def test_two_processes_exchange_what_they_have(tmp_path):
    assert together(2, tmp_path / "ranks", exchange) == ["", ""]


@forked
def test_the_end_of_one_process_is_the_end_of_all(tmp_path):
    def work(processes: Processes) -> None:
        if not processes.is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        processes.wait()

    message, died = together(2, tmp_path / "ranks", work)
    assert message.startswith("another process of this training has ended")
    assert died == str(-signal.SIGKILL)


def test_alone_nothing_is_exchanged():
    alone = Processes()
    assert (alone.is_first, alone.size, alone.total(0.3), alone.any(False)) == (True, 1, 0.3, False)
    assert (alone.numbers([1, 2]), alone.content(b"a"), alone.seed(1, 2)) == ([1, 2], b"a", None)
    assert alone.first_to_fail()
    assert alone.first_to_fail()
