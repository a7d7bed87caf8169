"""Compiled search beside the layers engine, on a user's call: Translator.translate.

REGARD_DATA=data python benchmarks/engines.py [--sentences 400] [--rounds 5] [--out FILE]

Spanish sentences of Tatoeba's validation file, drawn with a fixed seed, are translated by the bundled es-en with its
own search settings, one thread. Engines take turns. `seconds` are medians for all sentences; `times` is the time of
the layers engine over that of the engine. A "line" row translates the sentences one by one, as a terminal does.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path

import torch
from _measure import interleaved, write

from regard.translation.engines.engine import LOOPS
from regard.translation.text.corpora import Tsv, read_aligned
from regard.translation.translator import Translator

ENGINES = {
    "layers": {"avoid_loops": "measured beside compiled search"},
    "compiled": {},
}


def sentences(count: int) -> list[str]:
    """A sample: the file is sorted by length."""
    table = Tsv(Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / "valid.tsv", 1, 0)
    return random.Random(1).sample([pair.source for pair in read_aligned(table)], count)


def run_of(engine: str, texts: list[str], *, alone: bool) -> Callable[[], None]:
    translator = Translator.open("es-en")
    translator.refresh(**ENGINES[engine])

    def run() -> None:
        for group in [[text] for text in texts] if alone else [texts]:
            translator.translate(group)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engines.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    LOOPS.wait()
    texts = sentences(options.sentences)
    results = {}
    for name, lines, alone in (("batch", texts, False), ("line", texts[:60], True)):
        runs = {engine: run_of(engine, lines, alone=alone) for engine in ENGINES}
        seconds = interleaved(runs, options.rounds)
        results[name] = {
            engine: {"seconds": taken, "times": seconds["layers"] / taken}
            for engine, taken in seconds.items()
        }
        print(name, {engine: f"{row['times']:.2f}" for engine, row in results[name].items()})
    write(options.out, {"model": "es-en", "sentences": options.sentences, "rows": results})


if __name__ == "__main__":
    main()
