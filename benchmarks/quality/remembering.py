"""Measure a model with a memory beside the model alone: BLEU, chrF, the curve of its weight, bytes, and the speed.

python benchmarks/quality/remembering.py CORPUS FOLDER [--sentences N] [--similar N] [--lists N] [--test]
    [--trained RUN] [--rows speed] [--rounds N] [--out FILE]

CORPUS is python-docs-es or tatoeba-spa-eng, in the folder that REGARD_DATA names, with the model es-en. The memory is
made of `train.tsv` in FOLDER and tuned on `valid.tsv`. Scores are of other lines of `valid.tsv`, with --test those of
`test.tsv`, which is for the end alone. --trained scores the run of another training, beside. --rows speed measures the
speed alone, of a memory that was made and tuned, and keeps the other rows of --out; --rounds says how often each batch
is timed. Differences of less than 3 BLEU on 200 lines are ties.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from _measure import write

from regard.translation.engines.remembering import Recall
from regard.translation.evaluation.scores import measure
from regard.translation.remembering import remember, tune
from regard.translation.text.corpora import Pair, Tsv, read_pairs
from regard.translation.translator import Translator

MODEL = "es-en"
BEAMS = 1, 5
BATCH = 32  # sentences that are translated at a time where the speed is measured
TIMED = {"python-docs-es": 64, "tatoeba-spa-eng": 512}  # sentences of which the speed is measured
ROUNDS = {"python-docs-es": 3, "tatoeba-spa-eng": 5}  # two to three minutes


def read(path: Path) -> list[Pair]:
    """The pairs of a table, the target in its first column."""
    return read_pairs(Tsv(path, source_column=1, target_column=0)).pairs


def score(translator: Translator, pairs: list[Pair], beam: int) -> dict[str, float | None]:
    texts = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = measure([each.text for each in texts], [pair.target for pair in pairs])
    print(f"beam {beam}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}", flush=True)
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def speeds(
    translator: Translator, folder: Path, sources: list[str], rounds: int
) -> dict[str, float]:
    """The speed with the memory over that without, in processor seconds, by the beam.

    Both translate each batch in turn. The seconds of a way are the sum of the medians of its batches, so that a slow
    moment of the machine counts for one batch alone.
    """
    translator.read_memory(folder)
    memory = translator.recall
    batches = [sources[start : start + BATCH] for start in range(0, len(sources), BATCH)]
    gc.collect()
    gc.freeze()  # a collection of all objects takes .2 s, and falls into one run of ten

    def seconds(batch: list[str], beam: int, recall: Recall | None) -> float:
        translator.recall = recall
        start = time.process_time()
        translator.translate(batch, beam=beam)
        return time.process_time() - start

    ratios = {}
    for beam in BEAMS:
        for recall in (None, memory):  # not counted: loops are loaded
            seconds(batches[0], beam, recall)
        times = np.array(
            [
                [[seconds(batch, beam, recall) for recall in (None, memory)] for batch in batches]
                for _ in range(rounds)
            ]
        )
        alone, with_memory = np.median(times, 0).sum(0)
        ratios[f"beam {beam}"] = float(alone / with_memory)
    translator.recall = memory
    translator.forget()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", choices=["python-docs-es", "tatoeba-spa-eng"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--similar", type=int, default=0)
    parser.add_argument("--lists", type=int)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--trained")
    parser.add_argument("--rows", choices=["all", "speed"], default="all")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    data = Path(os.environ["REGARD_DATA"]) / options.corpus
    train, valid = read(data / "train.tsv"), read(data / "valid.tsv")
    random.Random(2).shuffle(valid)
    middle = len(valid) // 2
    tuning, for_speed = valid[:middle][: options.sentences], valid[middle:]
    scored = for_speed[: options.sentences]
    if options.test:
        scored = for_speed = read(data / "test.tsv")
        # Files are sorted by length, and the speed is measured on the first sentences.
        random.Random(2).shuffle(scored)
    translator = Translator.open(MODEL)
    timed = [pair.source for pair in for_speed[: TIMED[options.corpus]]]
    rounds = options.rounds or ROUNDS[options.corpus]
    if options.rows == "speed":
        results = {"speed": speeds(translator, options.folder, timed, rounds)}
        print(results)
        if options.out:
            stored = json.loads(options.out.read_text())
            sections = {key: stored[key] for key in stored if key not in ("machine", "earlier")}
            write(options.out, {**sections, **results}, keeps=options.out)
        return
    start = time.process_time()
    remember(translator, train, options.folder)
    seconds = time.process_time() - start
    print(f"remembered in {seconds:.0f} s", flush=True)
    mixing, trials = tune(
        translator, tuning, options.folder, similar=options.similar, lists=options.lists
    )
    print(mixing, trials, flush=True)
    with translator.datastore(options.folder) as datastore:
        entries = len(datastore)
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    copied = measure([pair.source for pair in scored], [pair.target for pair in scored])
    rows: dict[str, Any] = {"source copied": {"bleu": copied.bleu, "chrf": copied.chrf}}
    for beam in BEAMS:
        rows[f"model, beam {beam}"] = score(translator, scored, beam)
        translator.read_memory(options.folder)
        rows[f"memory, beam {beam}"] = score(translator, scored, beam)
        translator.forget()
        if options.trained:
            trained = Translator.open(options.trained)
            rows[f"fine-tuned, beam {beam}"] = score(trained, scored, beam)
    results = {
        "corpus": options.corpus,
        "pairs": len(train),
        "sentences": len(scored),
        "file": "test" if options.test else "valid",
        "entries": entries,
        "bytes": size,
        "seconds to remember": seconds,
        "mixing": vars(mixing),
        "curve": [trial._asdict() for trial in trials],
        "rows": rows,
        "speed": speeds(translator, options.folder, timed, rounds),
    }
    for name, scores in rows.items():
        print(f"{name:20} BLEU {scores['bleu']:6.2f}  chrF {scores['chrf']:6.2f}")
    print({name: value for name, value in results.items() if name not in ("rows", "curve")})
    print(results["curve"])
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
