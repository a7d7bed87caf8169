"""Search beside Hugging Face's generate and CTranslate2: the same weights, batches and threads, in turns.

REGARD_DATA=data python benchmarks/peers/search.py [--model es-en] [--cells greedy-32 ...] [--out FILE]

Sentences of Tatoeba's validation file, drawn with a fixed seed, sorted by length and cut into
batches; each engine is given the ids or pieces of a batch, and its time counts until it has the ids
or pieces of the translations: processor seconds on one thread, seconds of the clock on several. Everybody
takes each batch in turn; a rate is the sentences over the sum of the batches' medians. BLEU is of the same
translations, and `same` counts those equal to ours. The beam's length penalty is each engine's own, with
exponent 1, the default of all.

Cells and engines that are not asked for keep what the file holds of them. `--plot` draws it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _measure import machine

from regard.errors import library
from regard.interop import ctranslate2 as exporter
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.engines import choose
from regard.translation.engines.engine import LOOPS
from regard.translation.evaluation.scores import measure
from regard.translation.models.transformer.model import Transformer
from regard.translation.text.batches import sources
from regard.translation.text.corpora import Pair, Tsv, read_aligned
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translator

CELLS = {"greedy-1": (1, 1), "greedy-32": (1, 32), "beam5-1": (5, 1), "beam5-32": (5, 32)}
SENTENCES = {1: 64, 32: 256}
LONGEST = 256

Ids = list[list[int]]
Engine = Callable[[Ids, int], Ids]


def ours(translator: Translator) -> Engine:
    model, engine = translator.model, choose(translator.model)

    def run(batch: Ids, beam: int) -> Ids:
        source, lengths = sources(batch)
        hypotheses = translate_batch(model, source, lengths, Search(beam=beam), engine=engine)
        return [one.tokens for (one, *_) in hypotheses]

    return run


def hugging_face(translator: Translator) -> Engine:
    from _m2m100 import m2m100

    assert isinstance(translator.model, Transformer)
    model = m2m100(translator.model)

    def run(batch: Ids, beam: int) -> Ids:
        source, lengths = sources(batch)
        mask = torch.arange(source.shape[1]) < lengths[:, None]
        with torch.inference_mode():
            outputs = model.generate(
                source,
                attention_mask=mask.long(),
                num_beams=beam,
                do_sample=False,
                max_length=LONGEST,
            )
        return [_until_end(row[1:]) for row in outputs.tolist()]

    return run


def ctranslate2(translator: Translator, quantization: Any) -> Engine:
    pieces = translator.tokenizers.target.pieces(range(len(translator.tokenizers.target)))
    ids = {piece: i for i, piece in enumerate(pieces)}
    reads = translator.tokenizers.source.pieces(range(len(translator.tokenizers.source)))
    with TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        exporter.export(translator, place, quantization)
        engine = library("ctranslate2", "ctranslate2").Translator(
            str(place), inter_threads=1, intra_threads=torch.get_num_threads()
        )

    def run(batch: Ids, beam: int) -> Ids:
        answers = engine.translate_batch(
            [[reads[i] for i in row] for row in batch], beam_size=beam, max_decoding_length=LONGEST
        )
        return [[ids[piece] for piece in answer.hypotheses[0]] for answer in answers]

    return run


ENGINES: dict[str, Callable[[Translator], Engine]] = {
    "regard": ours,
    "hugging face": hugging_face,
    "ctranslate2 float32": lambda translator: ctranslate2(translator, "float32"),
    "ctranslate2 int8": lambda translator: ctranslate2(translator, "int8"),
}


def cell(
    name: str, engines: dict[str, Engine], pairs: list[Pair], translator: Translator, rounds: int
) -> dict[str, dict[str, float]]:
    beam, size = CELLS[name]
    pairs = sorted(pairs[: SENTENCES[size]], key=lambda pair: len(pair.source))
    encoded = [translator.tokenizers.source.encode(pair.source) for pair in pairs]
    batches = [encoded[i : i + size] for i in range(0, len(encoded), size)]
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    translations: dict[str, list[str]] = {name: [] for name in engines}
    seconds = dict.fromkeys(engines, 0.0)
    for batch in batches:
        times_by_engine: dict[str, list[float]] = {name: [] for name in engines}
        answers: dict[str, Ids] = {}
        for _ in range(rounds):
            for who, engine in engines.items():
                start = clock()
                answers[who] = engine(batch, beam)
                times_by_engine[who].append(clock() - start)
        for who, times in times_by_engine.items():
            seconds[who] += statistics.median(times)
            translations[who] += [translator.tokenizers.target.decode(ids) for ids in answers[who]]
    references = [pair.target for pair in pairs]
    reference = translations.get("regard")
    return {
        who: {
            "sentences_per_second": len(pairs) / seconds[who],
            "bleu": measure(texts, references, measures=["bleu"]).bleu or 0.0,
            "same": sum(map(str.__eq__, texts, reference)) / len(texts) if reference else 0.0,
            "rounds": rounds,
        }
        for who, texts in translations.items()
    }


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars of sentences a second, as ratios to Hugging Face's."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    cells = results["cells"]
    names = [who for who in ENGINES if all(who in cell for cell in cells.values())]
    figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
    for i, who in enumerate(names):
        rates = [cells[name][who]["sentences_per_second"] for name in cells]
        bases = [cells[name]["hugging face"]["sentences_per_second"] for name in cells]
        heights = [rate / base for rate, base in zip(rates, bases, strict=True)]
        step = 0.85 / len(names)
        places = [k + (i - (len(names) - 1) / 2) * step for k in range(len(cells))]
        bars = axes.bar(places, heights, 0.95 * step, label=who)
        axes.bar_label(bars, [f"{rate:.0f}" for rate in rates], fontsize=7, padding=1)
    titles = {
        "greedy-1": "greedy, 1",
        "greedy-32": "greedy, 32",
        "beam5-1": "beam 5, 1",
        "beam5-32": "beam 5, 32",
    }
    axes.set_xticks(range(len(cells)), [titles[name] for name in cells])
    axes.set_ylabel("times Hugging Face's generate")
    axes.set_title("Search on one thread: sentences a second, by search and batch", fontsize=10)
    axes.legend(fontsize=8, ncols=4, loc="upper center")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.22)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def _until_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(EOS)] if EOS in ids else ids


def sentences(count: int) -> list[Pair]:
    folder = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng"
    pairs = read_aligned(Tsv(folder / "valid.tsv", source_column=1, target_column=0))
    return random.Random(1).sample(pairs, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="es-en")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=CELLS)
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", action="store_true", help="only draw what the file holds")
    options = parser.parse_args()
    if options.plot:
        plot(json.loads(options.out.read_text()), options.out.with_suffix(".png"))
        return
    torch.set_num_threads(options.threads)
    LOOPS.wait()
    translator = Translator.open(options.model)
    pairs = sentences(max(SENTENCES.values()))
    engines = {name: ENGINES[name](translator) for name in options.engines}
    warm = [translator.tokenizers.source.encode(pair.source) for pair in pairs[:2]]
    for engine in engines.values():
        engine(warm, 1), engine(warm, 5)
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for name in options.cells:
        figures_of_cell = cell(name, engines, pairs, translator, options.rounds)
        for who, figures in figures_of_cell.items():
            print(f"{name:10} {who:20} " + "  ".join(f"{k} {v:.2f}" for k, v in figures.items()))
        sys.stdout.flush()
        results.setdefault("cells", {}).setdefault(name, {}).update(figures_of_cell)
    if options.out:
        results = {"machine": machine(), "model": options.model, "cells": results["cells"]}
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
