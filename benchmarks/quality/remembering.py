"""Measure a model with a memory beside the model alone: BLEU, chrF, the curve of its weight, bytes, and the speed.

python benchmarks/quality/remembering.py CORPUS FOLDER [--sentences N] [--similar N] [--lists N] [--test]
    [--trained RUN] [--rows speed] [--out FILE]

CORPUS is python-docs-es or tatoeba-spa-eng, in the folder that REGARD_DATA names, with the model es-en. The memory is
made of `train.tsv` in FOLDER and tuned on `valid.tsv`. Scores are of other lines of `valid.tsv`, with --test those of
`test.tsv`, which is for the end alone. --trained scores the run of another training, beside. --rows speed measures the
speed alone, of a memory that was made and tuned, and keeps the other rows of --out. Differences of less than 3 BLEU on
200 lines are ties.
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

from _measure import interleaved, write

from regard.translation.evaluation.scores import measure
from regard.translation.remembering import remember, tune
from regard.translation.text.corpora import Pair, Tsv, read_pairs
from regard.translation.translator import Translator

MODEL = "es-en"
ROUNDS = 9
TIMED = {"python-docs-es": 64, "tatoeba-spa-eng": 256}  # sentences of which the speed is measured
BATCH_TOKENS = {1: 32 * 30, 5: 32 * 30 * 5}  # about 32 sentences at a time


def read(path: Path) -> list[Pair]:
    """The pairs of a table, the target in its first column."""
    return read_pairs(Tsv(path, source_column=1, target_column=0)).pairs


def score(translator: Translator, pairs: list[Pair], beam: int) -> dict[str, float | None]:
    texts = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = measure([each.text for each in texts], [pair.target for pair in pairs])
    print(f"beam {beam}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}", flush=True)
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def speeds(translator: Translator, folder: Path, sources: list[str]) -> dict[str, float]:
    """The speed with the memory over that without, in processor seconds, by the beam."""
    ratios = {}
    gc.collect()
    gc.freeze()  # a collection of all objects takes .2 s, and falls into one run of ten
    for beam in BATCH_TOKENS:
        translator.read_memory(folder)
        recall = translator.recall
        assert recall is not None

        def with_memory(beam: int = beam, recall: Any = recall) -> None:
            translator.recall = recall
            translator.translate(sources, beam=beam, batch_tokens=BATCH_TOKENS[beam])

        def alone(beam: int = beam) -> None:
            translator.recall = None
            translator.translate(sources, beam=beam, batch_tokens=BATCH_TOKENS[beam])

        seconds = interleaved(
            {"model": alone, "memory": with_memory}, ROUNDS, clock=time.process_time
        )
        translator.recall = recall
        translator.forget()
        ratios[f"beam {beam}"] = seconds["model"] / seconds["memory"]
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
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    data = Path(os.environ["REGARD_DATA"]) / options.corpus
    train, valid = read(data / "train.tsv"), read(data / "valid.tsv")
    random.Random(2).shuffle(valid)
    middle = len(valid) // 2
    tuning, scored = valid[:middle][: options.sentences], valid[middle:][: options.sentences]
    if options.test:
        scored = read(data / "test.tsv")
        # Files are sorted by length, and the speed is measured on the first sentences.
        random.Random(2).shuffle(scored)
    translator = Translator.open(MODEL)
    timed = [pair.source for pair in scored[: TIMED[options.corpus]]]
    if options.rows == "speed":
        results = {"speed": speeds(translator, options.folder, timed)}
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
    for beam in (1, 5):
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
        "speed": speeds(translator, options.folder, timed),
    }
    for name, scores in rows.items():
        print(f"{name:20} BLEU {scores['bleu']:6.2f}  chrF {scores['chrf']:6.2f}")
    print({name: value for name, value in results.items() if name not in ("rows", "curve")})
    print(results["curve"])
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
