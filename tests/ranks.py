"""Ranks as threads or forks of this process, with the real messages of Gloo between them."""

import gc
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from threading import Lock
from typing import Any

import pytest
import torch.distributed as dist

Call = Callable[[Any, int], Any]
FORK = get_context("fork")


class Died(Exception):
    """A rank ended without an answer."""


@pytest.fixture
def on_ranks(monkeypatch):
    """Call a function of (group, rank) on ranks, and return their answers, or the errors that they raise.

    Each is a thread of this process. One of them runs at a time: the others wait for messages.
    """
    from regard.attention.ranks import exchange  # here: --shapes watches the first import

    turn, send = Lock(), exchange._exchange

    def wait(*arguments: Any) -> Any:
        turn.release()
        try:
            return send(*arguments)
        finally:
            turn.acquire()

    monkeypatch.setattr(exchange, "_exchange", wait)

    def run(ranks: int, call: Call, seconds: float = 60) -> list[Any]:
        store = dist.HashStore()

        def on_rank(rank: int) -> Any:
            group = dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=seconds))
            with turn:
                return answer(call, group, rank)

        with ThreadPoolExecutor(ranks) as pool:
            return list(pool.map(on_rank, range(ranks)))

    return run


def answer(call: Call, group: Any, rank: int) -> Any:
    try:
        return call(group, rank)
    except Exception as error:
        return error


@pytest.fixture
def on_forks(tmp_path):
    """The same in a fork for each rank, which may be killed."""

    def run(ranks: int, call: Call, seconds: float = 60) -> list[Any]:
        path = str(tmp_path / "store")
        gc.collect()  # a group of an earlier test that a fork lets go of ends the fork

        def on_rank(rank: int, connection: Any) -> None:
            store, timeout = dist.FileStore(path, ranks), timedelta(seconds=seconds)
            group = dist.ProcessGroupGloo(store, rank, ranks, timeout)
            connection.send_bytes(pickle.dumps(answer(call, group, rank)))

        pipes = [FORK.Pipe(duplex=False) for _ in range(ranks)]
        processes = [
            FORK.Process(target=on_rank, args=(rank, writer), daemon=True)
            for rank, (_, writer) in enumerate(pipes)
        ]
        answers = []
        # A fork has no threads of the groups before it: it must not end them.
        gc.collect()
        gc.freeze()
        for process, (_, writer) in zip(processes, pipes, strict=True):
            process.start()
            writer.close()
        gc.unfreeze()
        for process, (reader, _) in zip(processes, pipes, strict=True):
            try:
                answers.append(pickle.loads(reader.recv_bytes()))
            except EOFError:
                answers.append(Died())
            process.join()
        return answers

    return run
