"""Small calls: regard.attend, the modules and a step of a decoder beside torch's own.

python benchmarks/small.py [--rounds 60] [--out benchmarks/results/small.json]

Microseconds of the processor on one thread, in turns; the ratio is the median over the turns. "by hand" is a step of
a decoder that appends to its keys and values by torch.cat and calls F.scaled_dot_product_attention.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _measure import write
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import masks

WIDTH, HEADS, LENGTH, CACHE = 64, 4, 8, 4096
TURN = 2e-3  # seconds that a turn of one side takes, about
sdpa = F.scaled_dot_product_attention
CAUSAL, LAST = masks.causal(align="start"), masks.causal(align="end")


class Row(NamedTuple):
    """A call of ours beside torch's, and the ratio to reach."""

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    target: float
    gradients: bool = False


def attends(*shape: int, targets: tuple[float, float, float]) -> Iterator[Row]:
    query, key, value = (torch.randn(shape) for _ in range(3))
    length = shape[-2]
    padding, shorter = masks.padding([3 * length // 4]), 3 * length // 4
    readable = (torch.arange(length) < shorter).expand(length, length)
    calls: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "no mask": ({}, {}),
        "causal": ({"mask": CAUSAL}, {"is_causal": True}),
        "padding": ({"mask": padding}, {"attn_mask": readable}),
    }
    for (name, (ours, theirs)), target in zip(calls.items(), targets, strict=True):
        yield Row(
            f"attend {shape}, {name}",
            lambda ours=ours: regard.attend(query, key, value, **ours),
            lambda theirs=theirs: sdpa(query, key, value, **theirs),
            target,
        )


def steps() -> Iterator[Row]:
    """One query against keys of a decoder."""
    query = torch.randn(1, 8, 1, 64)
    key, value = (torch.randn(1, 8, CACHE, 64) for _ in range(2))
    shorter = CACHE - 96
    cut = key[:, :, :shorter], value[:, :, :shorter]
    rules: dict[str, tuple[masks.Mask | None, tuple[Tensor, Tensor]]] = {
        "no mask": (None, (key, value)),
        "causal": (LAST, (key, value)),
        "padding": (masks.padding([shorter]), cut),
    }
    for name, (mask, sides) in rules.items():
        yield Row(
            f"one query, {CACHE} keys, {name}",
            lambda mask=mask: regard.attend(query, key, value, mask=mask),
            lambda sides=sides: sdpa(query, *sides),
            1.1,
        )


def modules() -> Iterator[Row]:
    """Modules of the same sizes; torch's are in training mode, where each operation is called from Python too."""
    x = torch.randn(1, LENGTH, WIDTH)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
    )
    ours = regard.MultiHeadAttention(WIDTH, HEADS, bias=True)
    block = regard.TransformerBlock(WIDTH, HEADS, bias=True)
    pairs: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "MultiHeadAttention": (lambda: ours(x), lambda: theirs(x, x, x, need_weights=False)[0]),
        "TransformerBlock": (lambda: block(x), lambda: layer(x)),
    }
    for name, (call, peer) in pairs.items():
        yield Row(name, call, peer, 1.2)
        yield Row(
            f"{name}, trained",
            lambda call=call: call().sum().backward(),
            lambda peer=peer: peer().sum().backward(),
            1.2,
            gradients=True,
        )
    layer, theirs = layer.eval(), theirs.eval()
    evaluated = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    yield Row(
        "MultiHeadAttention over torch's compiled path of inference",
        lambda: ours(x),
        lambda: evaluated(x, x, x, need_weights=False)[0],
        1.2,
    )


def cached(length: int) -> Iterator[Row]:
    """A step of a decoder with a memory of so many steps, which starts again before it is much longer."""
    width, heads = 512, 8
    attention = regard.MultiHeadAttention(width, heads)
    projections = (
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    past, step = torch.randn(1, length, width), torch.randn(1, 1, width)
    state: dict[str, Any] = {}

    def ours() -> Tensor:
        if len(state.get("memory", ())) in (0, length + 64):
            state["memory"] = attention.remember(past)
        memory = attention.remember(step, memory=state["memory"])
        output: Tensor = attention(step, memory=memory, mask="causal")
        return output

    def split(x: Tensor) -> Tensor:
        return x.view(1, -1, heads, width // heads).transpose(1, 2)

    def by_hand() -> Tensor:
        query, key, value = (split(projection(step)) for projection in projections)
        if "key" not in state or state["key"].shape[-2] == length + 64:
            state["key"], state["value"] = (
                split(projection(past)) for projection in projections[1:]
            )
        state["key"] = torch.cat([state["key"], key], -2)
        state["value"] = torch.cat([state["value"], value], -2)
        reading = sdpa(query, state["key"], state["value"])
        output: Tensor = attention.output_projection(reading.transpose(1, 2).reshape(1, 1, width))
        return output

    yield Row(f"a cached step over {length} steps, over by hand", ours, by_hand, 1.0)


def measured(row: Row, rounds: int) -> dict[str, Any]:
    sides = row.ours, row.peer
    turns: list[list[float]] = [[], []]
    with torch.set_grad_enabled(row.gradients):
        for side in sides:
            for _ in range(20):
                side()
        start = time.process_time()
        row.peer()
        repeats = max(1, min(100, int(TURN / max(1e-6, time.process_time() - start))))
        for _ in range(rounds):
            for side, seconds in zip(sides, turns, strict=True):
                start = time.process_time()
                for _ in range(repeats):
                    side()
                seconds.append((time.process_time() - start) / repeats * 1e6)
    ours, peer = (statistics.median(seconds) for seconds in turns)
    ratio = statistics.median(a / b for a, b in zip(*turns, strict=True))
    return {
        "call": row.name,
        "ours": round(ours, 1),
        "torch": round(peer, 1),
        "ratio": round(ratio, 2),
        "target": row.target,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [
        *attends(1, LENGTH, WIDTH, targets=(1.5, 2.0, 3.0)),
        *attends(1, HEADS, LENGTH, WIDTH // HEADS, targets=(1.5, 2.0, 3.0)),
        *attends(1, 8, LENGTH, WIDTH, targets=(1.5, 2.0, 3.0)),
        *steps(),
        *modules(),
        *cached(256),
        *cached(CACHE),
        *attends(4, 8, 512, 64, targets=(1.0, 1.0, 1.0)),
    ]
    results = []
    for row in rows:
        results.append(measured(row, options.rounds))
        print(results[-1], flush=True)
    if options.out:
        write(options.out, {"small": results})


if __name__ == "__main__":
    main()
