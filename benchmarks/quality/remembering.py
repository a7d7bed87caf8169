"""Measure a model with a memory beside the model alone: BLEU, chrF, the curve of its weight, bytes, and the speed.

python benchmarks/quality/remembering.py CORPUS FOLDER [--pairs N] [--sentences N] [--near N] [--similar N] [--lists N]
    [--test] [--tuned RUN] [--out FILE]

CORPUS is python-docs-es or tatoeba-spa-eng, in the folder that REGARD_DATA names, with the model es-en. The memory is
made of `train.tsv` in FOLDER and tuned on `valid.tsv`. Scores are of other lines of `valid.tsv`, with --test those of
`test.tsv`, which is for the end alone. --pairs takes so many lines of the training file, drawn by a fixed seed; --near
takes the N most similar pairs of each sentence that is used, which changes little for --similar up to N.
--tuned scores the run of another training, beside. Differences of less than 3 BLEU on 200 lines are ties.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import interleaved, write

from regard.translation.datastore.similarity import WordIndex
from regard.translation.evaluation.scores import measure
from regard.translation.remembering import remember, tune
from regard.translation.text.corpora import Pair, Tsv, read_pairs
from regard.translation.translator import Translator

MODEL = "es-en"
ROUNDS = 3
TIMED = 64  # sentences of which the speed is measured
BATCH_TOKENS = {1: 32 * 30, 5: 32 * 30 * 5}  # about 32 sentences at a time


def read(path: Path) -> list[Pair]:
    return read_pairs(Tsv(path, source_column=1, target_column=0)).pairs


def near(pairs: list[Pair], sentences: list[Pair], count: int) -> list[Pair]:
    """The pairs whose sources are most similar to each sentence."""
    index = WordIndex(pair.source for pair in pairs)
    numbers = index.most_similar([pair.source for pair in sentences], count)
    return [pairs[number] for number in sorted(set(numbers.flatten().tolist()) - {-1})]


def score(translator: Translator, pairs: list[Pair], beam: int) -> dict[str, float | None]:
    texts = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = measure([each.text for each in texts], [pair.target for pair in pairs])
    print(f"beam {beam}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}", flush=True)
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def speeds(translator: Translator, folder: Path, sources: list[str]) -> dict[str, float]:
    """The speed with the memory over that without, in processor seconds, by the beam."""

    answer = {}
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
        answer[f"beam {beam}"] = seconds["model"] / seconds["memory"]
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", choices=["python-docs-es", "tatoeba-spa-eng"])
    parser.add_argument("folder", type=Path)
    for name, default in (("pairs", 0), ("sentences", 200), ("near", 0), ("similar", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lists", type=int)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--tuned")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    data = Path(os.environ["REGARD_DATA"]) / options.corpus
    train, valid = read(data / "train.tsv"), read(data / "valid.tsv")
    random.Random(1).shuffle(train)
    random.Random(2).shuffle(valid)
    half = len(valid) // 2
    chosen, measured = valid[:half][: options.sentences], valid[half:][: options.sentences]
    if options.test:
        measured = read(data / "test.tsv")
    if options.pairs:
        train = train[: options.pairs]
    if options.near:
        train = near(train, chosen + measured, options.near)
    translator = Translator.open(MODEL)
    start = time.process_time()
    remember(translator, train, options.folder)
    build = time.process_time() - start
    print(f"remembered in {build:.0f} s", flush=True)
    mixing, trials = tune(
        translator, chosen, options.folder, similar=options.similar, lists=options.lists
    )
    print(mixing, trials, flush=True)
    with translator.datastore(options.folder) as datastore:
        entries = len(datastore)
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    copied = measure([pair.source for pair in measured], [pair.target for pair in measured])
    rows: dict[str, Any] = {"source copied": {"bleu": copied.bleu, "chrf": copied.chrf}}
    for beam in (1, 5):
        rows[f"model, beam {beam}"] = score(translator, measured, beam)
        translator.read_memory(options.folder)
        rows[f"memory, beam {beam}"] = score(translator, measured, beam)
        translator.forget()
        if options.tuned:
            tuned = Translator.open(options.tuned)
            rows[f"fine-tuned, beam {beam}"] = score(tuned, measured, beam)
    results = {
        "corpus": options.corpus,
        "pairs": len(train),
        "near": options.near,
        "sentences": len(measured),
        "file": "test" if options.test else "valid",
        "entries": entries,
        "bytes": size,
        "seconds to remember": build,
        "mixing": vars(mixing),
        "curve": [trial._asdict() for trial in trials],
        "rows": rows,
        "speed": speeds(translator, options.folder, [pair.source for pair in measured[:TIMED]]),
    }
    for name, scores in rows.items():
        print(f"{name:20} BLEU {scores['bleu']:6.2f}  chrF {scores['chrf']:6.2f}")
    print({name: value for name, value in results.items() if name not in ("rows", "curve")})
    print(results["curve"])
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
