"""A memory whose keys are shared out among processes: the time of the merge, and of readings by several ranks.

python benchmarks/machines.py [--keys 400000] [--rounds 20] [--namespaces] [--out benchmarks/results/machines.json]

Each rank is a process of one thread; all are on this machine. The merge is a reading of one key a rank; beside it
stands a bare all-gather of Gloo of as many bytes. With `--namespaces` (Linux, root) each rank lives in a network of its
own, and messages pass a bridge, as between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _measure import machine

import regard
from regard.attention.ranks.keys import HEADER, ROOM

WIDTH, SEED, PORT, NETWORK = 256, 0, 29731, "10.213.7"


def rank_of(options: argparse.Namespace) -> None:
    """One rank: the merge, and a reading of its share of the keys; rank 0 prints the figures."""
    torch.set_num_threads(1)
    rank, ranks = options.rank, options.ranks
    host = f"{NETWORK}.1" if options.namespaces else "127.0.0.1"
    store = dist.TCPStore(host, PORT, ranks, rank == 0, timedelta(seconds=60))
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    group = dist.group.WORLD
    generator = torch.Generator().manual_seed(SEED)
    query = torch.randn(1, WIDTH, generator=generator)
    keys = torch.randn(options.keys, WIDTH, generator=generator)
    share = keys.tensor_split(ranks)[rank].clone()
    message = torch.zeros(1 + HEADER + ROOM, dtype=torch.float64)
    messages = [torch.empty_like(message) for _ in range(ranks)]
    calls = {
        "merge": lambda: regard.attend(query, share[:1], share[:1], group=group),
        "all-gather": lambda: dist.all_gather(messages, message),
        "read": lambda: regard.attend(query, share, share, group=group),
    }
    figures: dict[str, float] = {}
    for name, call in calls.items():
        times = []
        for _ in range(options.rounds + 2):
            dist.barrier()
            start = time.perf_counter()
            reading = call()
            times.append(time.perf_counter() - start)
        figures[f"{name}, ms"] = 1e3 * statistics.median(times[2:])
    if rank == 0:
        expected = regard.attend(query.double(), keys.double(), keys.double())
        figures["largest error"] = (reading - expected).abs().max().item()
        print(json.dumps(figures), flush=True)
    dist.barrier()
    dist.destroy_process_group()


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
    command = [sys.executable, __file__, "--ranks", str(ranks), "--keys", str(options.keys)]
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
    parser.add_argument("--keys", type=int, default=400_000)
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
