"""Ranks of the group that torchrun's variables describe, in forks of this process, which have torch already."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist
from tests.ranks import FORK

import regard

CAUSAL = regard.masks.causal(align="end")


def read() -> None:
    """What a script does that torchrun starts."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    query, keys = torch.randn(3, 8), torch.randn(10, 8)
    share = keys.tensor_split(2)[dist.get_rank()]
    reading = regard.attend(query, share, share, mask=CAUSAL, group=dist.group.WORLD)
    equal = torch.allclose(reading, regard.attend(query, keys, keys, mask=CAUSAL), atol=1e-6)
    dist.destroy_process_group()
    os._exit(0 if equal else 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch with a GPU cannot be forked")
def test_two_processes_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    for name, value in {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        ranks.append(FORK.Process(target=read, daemon=True))
        ranks[-1].start()
    for process in ranks:
        process.join(300)
    assert [process.exitcode for process in ranks] == [0, 0]
