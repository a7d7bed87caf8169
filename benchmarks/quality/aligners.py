"""Word links learnt from the text alone, by `regard align --adapt` and by eflomal, on gold links.

python benchmarks/quality/aligners.py --eflomal PROGRAM --held-out --out benchmarks/results/word_links.json [--resume]
python benchmarks/quality/aligners.py --corpora --eflomal PROGRAM [--out benchmarks/results/aligners.json]

"alone": an aligner sees the sentences of the set and nothing else. "together": golden en-fr dev and Hansards dev, the
trial sentences of Hansards and the sentences of ALIBI are one text; of the latter two the links are not read. With
`--corpora` eflomal sees the training pairs of our translators as well. eflomal is a program of its own under another
licence: install it elsewhere (`pip install eflomal`, which needs a C compiler) and name it here; without it the table
says so. Each set is written when it is measured: `--resume` goes on with a run that ended early. The
folder REGARD_DATA names holds corpora and gold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _eflomal import align
from _measure import write

from regard.translation.aligning.adapted import adapt
from regard.translation.aligning.aligner import Aligned
from regard.translation.evaluation.alignment import Link, diagonal_links, measure_alignment
from regard.translation.evaluation.gold import Gold, read_gold
from regard.translation.text.corpora import Tsv, read_lines, read_pairs
from regard.translation.translator import Translator

DEVELOPMENT = {  # all constants were chosen on these
    "golden en-es dev": "wa-golden-europarl/en-es.dev.jsonl",
    "golden en-fr dev": "wa-golden-europarl/en-fr.dev.jsonl",
    "Hansards dev": "wa-enfr-hansards/dev.jsonl",
    "Romanian-English": "wa-roen/test.jsonl",
}
FRENCH = ["golden en-fr dev", "Hansards dev"]
ALIBI = [
    f"alibi-fr-en/{name}.jsonl"
    for name in ("ChatBotte_MasterCat", "LAuberge_TheInn", "LaBarbeBleue_BlueBeard")
]
HELD_OUT = {"golden en-pt": ["wa-golden-europarl/en-pt.dev.jsonl"], "ALIBI fr-en": ALIBI}
TRIAL = "wa-enfr-hansards/trial_sure_only.jsonl"
# A translator for each set, and whether it reads the set's target. The share of its attention was chosen on French.
TRANSLATORS = {
    "golden en-fr dev": ("en-fr", False),
    "Hansards dev": ("en-fr", False),
    "golden en-es dev": ("es-en", True),
}
CORPORA = {
    "golden en-es dev": "tatoeba-spa-eng/train.tsv",
    "golden en-fr dev": "tatoeba-fra-eng/train.tsv",
    "Hansards dev": "tatoeba-fra-eng/train.tsv",
}
# Alignment error rates with 1,130,551 and 48,681 pairs, as the page of eflomal gives them.
PUBLISHED = {
    "fast_align": {"Hansards, 1,130,551 pairs": 15.3, "Romanian-English, 48,681 pairs": 32.5},
    "eflomal": {"Hansards, 1,130,551 pairs": 8.1, "Romanian-English, 48,681 pairs": 29.8},
    "source": "github.com/robertostling/eflomal, README.md",
}
Pairs = list[tuple[list[str], list[str]]]


def join(golds: Sequence[Gold]) -> Gold:
    """Several files as one set."""
    sure = [links for gold in golds for links in gold.sure]
    possible = [links for gold in golds for links in gold.possible]
    return Gold(sure, possible, [pair for gold in golds for pair in gold.words or []])


def scores(links: Sequence[set[Link]], gold: Gold) -> dict[str, float]:
    """The scores of Regard; the error rate is computed in a second way, which must agree."""
    measured = measure_alignment(links, gold.sure, gold.possible)
    ours, sure, possible = (
        {(number, *link) for number, sentence in enumerate(sentences) for link in sentence}
        for sentences in (links, gold.sure, gold.possible)
    )
    hits = len(ours & sure) + len(ours & (possible | sure))
    assert abs(measured.aer - 100 * (1 - hits / (len(ours) + len(sure)))) < 1e-9
    return {"aer": measured.aer, "precision": measured.precision, "recall": measured.recall}


def calibration_error(aligned: Sequence[Aligned], gold: Gold) -> float:
    """The mean distance of confidence and share of sure links, over ten bins of cells from 0.05 on.

    Cells that are possible and not sure are left out.
    """
    confidences, hits = [], []
    for pair, sure, possible in zip(aligned, gold.sure, gold.possible, strict=True):
        for target, source in (pair.weights >= 0.05).nonzero().tolist():
            if (source, target) in sure or (source, target) not in possible:
                confidences.append(float(pair.weights[target, source]))
                hits.append((source, target) in sure)
    bins = np.minimum((np.array(confidences) * 10).astype(int), 9)
    gaps = np.bincount(bins, np.array(confidences) - hits, minlength=10)
    return float(np.abs(gaps).sum() / len(bins))


def enciphered(pairs: Pairs) -> Pairs:
    """The pairs with each letter of the targets replaced by one of another script (Ethiopic)."""
    targets = [[word.lower() for word in target] for _, target in pairs]
    letters = sorted({c for target in targets for word in target for c in word if c.isalpha()})
    table = {ord(letter): 0x1200 + number for number, letter in enumerate(letters)}
    words = [[word.translate(table) for word in target] for target in targets]
    return [(source, target) for (source, _), target in zip(pairs, words, strict=True)]


def ours(
    pairs: Pairs, golds: Sequence[Gold], seeds: int, translator: str | None = None
) -> list[dict[str, Any]]:
    """For each gold, means over seeds, and the error rate of each seed. The golds are those of the first pairs."""
    runs: list[list[dict[str, float]]] = [[] for _ in golds]
    for seed in range(seeds):
        begin = time.process_time()
        text = adapt(pairs, seed=seed)
        if translator:
            opened_translator = Translator.open(translator)
            text = text.attended(opened_translator.model, opened_translator.tokenizers)
        aligned = iter(list(text.aligned()))
        seconds = time.process_time() - begin
        for gold, run in zip(golds, runs, strict=True):
            links = list(islice(aligned, len(gold)))
            error = {"calibration_error": calibration_error(links, gold)}
            error |= {"processor_seconds": seconds, "share_of_attention": text.share}
            run.append(scores([pair.links for pair in links], gold) | error)
    return [
        {name: mean(score[name] for score in run) for name in run[0]}
        | {"aer_by_seed": [score["aer"] for score in run]}
        for run in runs
    ]


def row(
    names: Sequence[str], golds: Sequence[Gold], pairs: Pairs, options: argparse.Namespace
) -> dict[str, Any]:
    """A row for each gold, whose pairs are the first: ours, and eflomal's."""
    answer: dict[str, Any] = {}
    theirs = iter(align(options.eflomal, pairs) if options.eflomal else [])
    for name, gold, measured in zip(names, golds, ours(pairs, golds, options.seeds), strict=True):
        links = list(islice(theirs, len(gold)))
        eflomal = scores(links, gold) if options.eflomal else "not installed here"
        answer[name] = {"sentences": len(gold), "regard": measured, "eflomal": eflomal}
        print(f"{name}: {measured['aer']:.1f}", measured, eflomal, flush=True)
    return answer


class Results:
    """The results, written whenever a set is measured, so that a run that ended early can go on (--resume)."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self._path = path
        self.table: dict[str, dict[str, Any]] = {}
        self.growth: list[dict[str, float]] = []
        if resume and path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.table, self.growth = stored["table"], stored.get("growth", [])

    def add(
        self, section: str, names: Sequence[str], measure: Callable[[], dict[str, Any]]
    ) -> None:
        """The rows of those names, unless the table has them."""
        rows = self.table.setdefault(section, {})
        if not set(names) <= rows.keys():
            rows |= measure()
            self.write()

    def write(self) -> None:
        if self._path is not None:
            results = {"table": self.table, "published": PUBLISHED, "growth": self.growth}
            write(self._path, results)


def attended(
    name: str, gold: Gold, model: str, flip: bool, options: argparse.Namespace
) -> dict[str, Any]:
    """A row with the attention of a translator."""
    gold = gold.flipped() if flip else gold
    (measured,) = ours(gold.words or [], [gold], options.seeds, model)
    print(f"{name} with {model}: {measured['aer']:.1f}", measured, flush=True)
    return {name: measured}


def tables(data: Path, options: argparse.Namespace, results: Results) -> None:
    def add(section: str, names: Sequence[str], golds: Sequence[Gold], pairs: Pairs) -> None:
        results.add(section, names, partial(row, names, golds, pairs, options))

    golds = {name: read_gold(data / file) for name, file in DEVELOPMENT.items()}
    words = {name: gold.words or [] for name, gold in golds.items()}
    for name, gold in golds.items():
        add("alone", [name], [gold], words[name])
        if name in TRANSLATORS:
            measure = partial(attended, name, gold, *TRANSLATORS[name], options)
            results.add("alone, with the attention of a translator", [name], measure)
    roman, hidden = "Romanian-English", "target letters enciphered"
    add(f"alone, {hidden}", [roman], [golds[roman]], enciphered(words[roman]))
    french = [golds[name] for name in FRENCH]
    all_words = [pair for name in FRENCH for pair in words[name]]
    all_words += read_gold(data / TRIAL).words or []
    all_words += [
        (target, source) for file in ALIBI for source, target in read_gold(data / file).words or []
    ]
    add(f"together, {hidden}", FRENCH, french, enciphered(all_words))
    add("together", FRENCH, french, all_words)
    for name, files in HELD_OUT.items() if options.held_out else ():
        gold = join([read_gold(data / file) for file in files])
        pairs = gold.words or []
        add("held out, alone", [name], [gold], pairs)
        add("held out, alone", [f"{name}, {hidden}"], [gold], enciphered(pairs))


def grow(data: Path, results: Results) -> None:
    """Processor seconds and the peak of memory of the whole command, each in a process of its own."""
    lines = [line.split("\t")[:2] for line in read_lines(data / "tatoeba-spa-eng/train.tsv")]
    for count in (500, 10_000, 20_000, 40_000, 100_000):
        if count not in [size["pairs"] for size in results.growth]:
            results.growth.append(cost("".join("\t".join(line) + "\n" for line in lines[:count])))
            print(results.growth[-1], flush=True)
            results.write()


def cost(text: str) -> dict[str, float]:
    """The settings of the command for a table of pairs."""
    count = text.count("\n")
    with TemporaryDirectory() as folder:
        table, links = Path(folder) / "table.tsv", Path(folder) / "links"
        table.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "regard", "align", "--adapt", str(table)]
        with links.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        assert links.read_bytes().count(b"\n") == count
    return {
        "pairs": count,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_megabytes": used.ru_maxrss / 1024,
    }


def with_corpora(data: Path, program: str) -> dict[str, Any]:
    """The diagonal, and eflomal with the training pairs of our translators behind the gold's sentences."""
    table: dict[str, Any] = {}
    for name, corpus in CORPORA.items():
        gold = read_gold(data / DEVELOPMENT[name])
        gold_pairs = gold.words or []
        pairs = read_pairs(Tsv(data / corpus)).pairs
        corpus_pairs = [(pair.source.split(), pair.target.split()) for pair in pairs]
        links = align(program, [*corpus_pairs, *gold_pairs])[-len(gold_pairs) :]
        diagonal = [diagonal_links(len(source), len(target)) for source, target in gold_pairs]
        table[name] = {
            "sentences": len(gold),
            "diagonal": scores(diagonal, gold),
            "eflomal": scores(links, gold),
        }
        print(name, table[name], flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eflomal", metavar="PROGRAM")
    parser.add_argument("--corpora", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true", help="keep the sets that --out has")
    options = parser.parse_args()
    data = Path(os.environ["REGARD_DATA"])
    if options.corpora:
        table = with_corpora(data, options.eflomal)
        if options.out:
            write(options.out, {"table": table})
        return
    results = Results(options.out, options.resume)
    tables(data, options, results)
    grow(data, results)
    results.write()
    print("published:", PUBLISHED)


if __name__ == "__main__":
    main()
