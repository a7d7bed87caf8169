"""Readings with a tolerance beside exact ones: the share that is read, the weight that is left out, and the time.

python benchmarks/bounds.py [--entries 200000] [--queries 20] [--rounds 3] [--out benchmarks/results/bounds.json]

Keys around centres, the states of the decoder of `es-en` before the words of Tatoeba's English side (REGARD_DATA), and
random keys. In RAM and in a folder, one query at a time. Milliseconds of the processor on one thread, in turns. Errors
are distances from a reading in float64. With faiss (`pip install "regard[faiss]"`), also the recall of approximate
searches.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _measure import interleaved, write
from torch import Tensor

from regard.memory import Memory, NearestIndex
from regard.memory.bounded import _products
from regard.memory.codes import decode, encode
from regard.memory.one_pass import LOOPS
from regard.scores import Dot, ScaledDot, Score
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

WIDTH, TOLERANCES, PROBES = 64, (0.01, 0.1), (1, 8, 64)
Data = tuple[Tensor, Tensor, Score]  # queries, keys


def clusters(entries: int, queries: int) -> Data:
    centres = 3 * torch.randn(1000, WIDTH)
    of_entries = centres[torch.randint(1000, (entries + queries,))]
    near = of_entries + 0.3 * torch.randn(entries + queries, WIDTH)
    return near[:queries], near[queries:], Dot()


def random(entries: int, queries: int) -> Data:
    return torch.randn(queries, WIDTH), torch.randn(entries, WIDTH), ScaledDot()


def states(entries: int, queries: int) -> Data:
    """The queries are states of sentences that the memory does not hold."""
    lines = (Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / "train.tsv").open(
        encoding="utf-8"
    )
    translator = Translator.open("es-en")
    batches: list[Tensor] = []

    def keep(module: Any, inputs: Any) -> None:
        batches.append(inputs[0].detach().flatten(0, -2).clone())

    hook = translator.model.output.register_forward_pre_hook(keep)
    with lines, hook, torch.no_grad():
        while sum(map(len, batches)) < entries + queries:
            spanish, english = next(lines).rstrip("\n").split("\t")[:2]
            translator.score([Pair(spanish, english)])
    rows = torch.cat(batches)
    return rows[-queries:], rows[:-queries][:entries], ScaledDot(1.0)


def measure(
    data: Data, rounds: int, open_memory: Callable[[Score], Memory]
) -> Iterator[tuple[str, dict[str, float]]]:
    queries, keys, score = data
    values = torch.randn(len(keys), WIDTH)
    memory = open_memory(score)
    memory.write(keys, values)
    exact = score(queries.double(), keys.double()).softmax(-1) @ values.double()
    for tolerance in TOLERANCES:
        answers = [memory.read(query.unsqueeze(0), tolerance=tolerance) for query in queries]
        seconds = interleaved(
            {
                "bounded": lambda: [memory.read(q, tolerance=tolerance) for q in queries],  # noqa: B023
                "exact": lambda: [memory.read(query) for query in queries],
            },
            rounds,
            time.process_time,
        )
        errors = [
            float((answer.reading - row).norm()) for answer, row in zip(answers, exact, strict=True)
        ]
        yield (
            f"tolerance {tolerance}",
            {
                "share, mean": round(sum(answer.share for answer in answers) / len(answers), 4),
                "read whole": sum(answer.share == 1 for answer in answers) / len(answers),
                "bound, largest": max(float(answer.bound) for answer in answers),
                "error, largest": max(errors),
                "error promised there": float(answers[errors.index(max(errors))].error),
                "exceeded": sum(
                    error > max(float(answer.error), 1e-5)
                    for error, answer in zip(errors, answers, strict=True)
                ),
                "milliseconds": round(1e3 * seconds["bounded"] / len(queries), 2),
                "exact, milliseconds": round(1e3 * seconds["exact"] / len(queries), 2),
                "time over exact": round(seconds["bounded"] / seconds["exact"], 3),
            },
        )


def products(rounds: int) -> dict[str, float]:
    """Codes multiplied as they are, beside codes that are widened."""
    codes, query = encode(torch.randn(1 << 15, WIDTH)).rows, torch.randn(1, WIDTH)
    seconds = interleaved(
        {
            "loop": lambda: _products(codes, query),
            "widened": lambda: query @ decode(codes, WIDTH).mT,
        },
        20 * rounds,
        time.process_time,
    )
    return {side: round(1e3 * median, 3) for side, median in seconds.items()}


def recalls(data: Data, rounds: int) -> dict[str, float]:
    """The share of the best 10 entries that an approximate search finds, and its milliseconds beside `find`."""
    queries, keys, score = data
    memory = Memory(score=score)
    memory.write(keys)
    index = NearestIndex(memory)
    runs: dict[str, Callable[[], Any]] = {"find": lambda: [memory.find(q, 10) for q in queries]}
    for probes in PROBES:
        runs[f"{probes} lists"] = lambda probes=probes: [
            index.find(q, 10, probes=probes) for q in queries
        ]
    row = {f"recall, {n} lists": round(index.recall(queries, 10, probes=n), 4) for n in PROBES}
    seconds = interleaved(runs, rounds, time.process_time)
    return row | {
        f"{side}, ms": round(1e3 * median / len(queries), 3) for side, median in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS.wait()
    results: dict[str, Any] = {"products of codes": products(options.rounds)}
    print(results)
    for kind in (clusters, states, random):
        data = kind(options.entries, options.queries)
        if find_spec("faiss"):
            title = f"{kind.__name__}, {tuple(data[1].shape)}, approximate"
            results[title] = recalls(data, options.rounds)
            print(title, results[title], flush=True)
        with TemporaryDirectory() as folder:
            places: dict[str, Callable[[Score], Memory]] = {
                "in RAM": lambda score: Memory(score=score),
                "in a folder": lambda score, folder=folder: Memory.open(
                    folder, write=True, score=score
                ),  # type: ignore[misc]
            }
            for place, open_memory in places.items():
                for name, row in measure(data, options.rounds, open_memory):
                    title = f"{kind.__name__}, {place}, {tuple(data[1].shape)}, {name}"
                    results[title] = row
                    print(title, row, flush=True)
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
