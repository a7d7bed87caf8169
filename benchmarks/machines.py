"""A memory whose keys are shared out among processes: the time of the merge, and of readings by several ranks.

python benchmarks/machines.py [--keys 400000 1600000] [--rounds 20] [--namespaces] [--out results.json]

Each rank is a process of one thread; all are on this machine. The merge is a reading of one key a rank; beside it
stands a bare all-gather of Gloo of as many bytes. Fixed costs are a small share of the readings of the larger memory.
With `--namespaces` (Linux, root) each rank lives in a network of its own, and messages pass a bridge, as between
machines. Committed: benchmarks/results/machines.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _measure import machine
from torch import Tensor

import regard
from regard.attention.parts import Part
from regard.attention.ranks.keys import HEADER, ROOM

WIDTH, BLOCK, SEED, PORT, NETWORK = 256, 1 << 14, 0, 29731, "10.213.7"


def rank_of(options: argparse.Namespace) -> None:
    """One rank: the merge, and a reading of its share of the keys; rank 0 prints the figures."""
    torch.set_num_threads(1)
    rank, ranks = options.rank, options.ranks
    host = f"{NETWORK}.1" if options.namespaces else "127.0.0.1"
    store = dist.TCPStore(host, PORT, ranks, rank == 0, timedelta(seconds=60))
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    group = dist.group.WORLD
    query = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(SEED))
    one_key = share_of(rank, ranks, ranks)
    message = torch.zeros(1 + HEADER + ROOM, dtype=torch.float64)
    messages = [torch.empty_like(message) for _ in range(ranks)]
    calls: dict[str, Callable[[], Any]] = {
        "merge": lambda: regard.attend(query, one_key, one_key, group=group),
        "all-gather": lambda: dist.all_gather(messages, message),
    }
    figures: dict[str, float] = {}
    for name, call in calls.items():
        figures[f"{name}, ms"] = median(call, options.rounds)
    for count in options.keys:
        share = share_of(rank, ranks, count)

        def read(share: Tensor = share) -> Tensor:
            return regard.attend(query, share, share, group=group)

        figures[f"read of {count:,} keys, ms"] = median(read, options.rounds)
        reading = read()
        if rank == 0:
            error = (reading - expected(query, ranks, count)).abs().max().item()
            figures["largest error"] = max(error, figures.get("largest error", 0.0))
    if rank == 0:
        print(json.dumps(figures), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def share_of(rank: int, ranks: int, count: int) -> Tensor:
    """The keys of one rank, which are the values too."""
    size = count // ranks + (rank < count % ranks)
    return torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(SEED + 1 + rank))


def median(call: Callable[[], Any], rounds: int) -> float:
    """Milliseconds of a call that all ranks begin together."""
    times = []
    for _ in range(rounds + 2):
        dist.barrier()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[2:])


def expected(query: Tensor, ranks: int, count: int) -> Tensor:
    """The reading of the keys of all ranks in float64."""
    scaled = query.double() / WIDTH**0.5
    shares = (share_of(rank, ranks, count) for rank in range(ranks))
    blocks = (block.double() for share in shares for block in share.split(BLOCK))
    return Part.sum(Part.of(scaled @ block.mT, block) for block in blocks).reading()


@contextmanager
def networks(ranks: int) -> Iterator[list[list[str]]]:
    """A network namespace for each rank, joined by a bridge; yields what starts a command in each."""
    names = [f"regard{rank}" for rank in range(ranks)]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        ip("link", "add", "regardbridge", "type", "bridge")
        ip("link", "set", "regardbridge", "up")
        for rank, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"{name}a", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}a", "master", "regardbridge", "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", "regardbridge"], check=False)


def measure(options: argparse.Namespace, ranks: int, starts: list[list[str]]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--ranks", str(ranks), "--keys", *map(str, options.keys)]
    command += ["--rounds", str(options.rounds), *(["--namespaces"] if options.namespaces else [])]
    environment = os.environ | ({"GLOO_SOCKET_IFNAME": "eth0"} if options.namespaces else {})
    processes = [
        subprocess.Popen(
            [*starts[rank], *command, "--rank", str(rank)],
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]
    printed, _ = processes[0].communicate(timeout=300)
    if any(process.wait(timeout=60) for process in processes):
        raise SystemExit("a rank failed: see above")
    return dict(json.loads(printed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[400_000, 1_600_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--namespaces", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return rank_of(options)
    results: dict[str, Any] = {"machine": machine(), "keys": options.keys, "width": WIDTH}
    results["namespaces"] = options.namespaces
    for ranks in (1, 2, 4):
        if options.namespaces:
            with networks(ranks) as starts:
                results[f"{ranks} ranks"] = measure(options, ranks, starts)
        else:
            results[f"{ranks} ranks"] = measure(options, ranks, [[]] * ranks)
        print(f"{ranks} ranks: {results[f'{ranks} ranks']}")
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
