"""What guided attention does for word links, and what it costs in translation.

python benchmarks/quality/guided.py RUNS --eflomal eflomal-align [--pair es-en | en-fr] [--start MODEL]
    [--steps 2500] [--weight 0.5] [--words spaces | marks] [--threads 1] [--only guided unguided] [--out FILE]

A trained model (the bundled es-en, or a run of tatoeba-en-fr) is trained on, on the same Tatoeba
sentences (the folder REGARD_DATA names): once with one head taught the links that eflomal finds in them,
once without, all else equal. Links of the gold sentences are read off that head as it was taught,
nothing chosen; for the model without, off the usual layer. What `regard align --choose` would find is
beside it. BLEU is of test.tsv. Trainings that were interrupted go on.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _eflomal import align
from _measure import write
from _training import progress, settings, train

from regard.translation.aligning.aligner import Aligner
from regard.translation.aligning.choice import Choice, usual
from regard.translation.aligning.selection import choose
from regard.translation.aligning.word_attention import word_attentions
from regard.translation.evaluation.alignment import measure_alignment
from regard.translation.evaluation.gold import Gold, read_gold
from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Tsv, read_aligned, read_pairs
from regard.translation.training.guiding import split_words
from regard.translation.translator import Translator

LAYER, HEAD = 1, 0


@dataclass(frozen=True)
class Case:
    """A pair of languages: its configuration, its corpus, and gold links by name."""

    configuration: str
    corpus: str
    columns: tuple[int, int]
    gold: dict[str, tuple[str, bool]]

    def file(self, split: str) -> Tsv:
        folder = Path(os.environ["REGARD_DATA"]) / self.corpus
        return Tsv(folder / f"{split}.tsv", *self.columns)

    def links(self) -> dict[str, Gold]:
        data = Path(os.environ["REGARD_DATA"])
        every = {name: (read_gold(data / path), flip) for name, (path, flip) in self.gold.items()}
        return {name: gold.flipped() if flip else gold for name, (gold, flip) in every.items()}


CASES = {
    "es-en": Case(
        "tatoeba-es-en",
        "tatoeba-spa-eng",
        (1, 0),
        {"golden en-es dev": ("wa-golden-europarl/en-es.dev.jsonl", True)},
    ),
    "en-fr": Case(
        "tatoeba-en-fr",
        "tatoeba-fra-eng",
        (0, 1),
        {
            "Hansards dev": ("wa-enfr-hansards/dev.jsonl", False),
            "golden en-fr dev": ("wa-golden-europarl/en-fr.dev.jsonl", False),
        },
    ),
}


def prepare(case: Case, folder: Path, program: str, words: str) -> None:
    """The corpus, and beside it the links of its training pairs."""
    corpus = folder / case.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid"):
        if not (corpus / f"{split}.tsv").exists():
            (corpus / f"{split}.tsv").symlink_to(case.file(split).path.resolve())
    links = corpus / "train.links"
    if not links.exists():
        cut = partial(split_words, marks=words == "marks")
        pairs = read_aligned(case.file("train"))
        alignments = align(program, [(cut(pair.source), cut(pair.target)) for pair in pairs])
        lines = (" ".join(f"{a}-{b}" for a, b in sorted(each)) for each in alignments)
        links.write_text("".join(f"{line}\n" for line in lines))


def trained(case: Case, name: str, options: argparse.Namespace) -> Path:
    """The model after some more steps."""
    changes = settings(
        training__max_steps=options.steps,
        training__optimiser="adam",
        training__batch_tokens=1024,
        training__learning_rate=3e-4,
        training__warmup=200,
        training__validate_every=max(1, options.steps // 5),
        training__threads=options.threads,
    )
    if name == "guided":
        changes += settings(
            data__train__links=f"{case.corpus}/train.links",
            training__guide__layer=LAYER,
            training__guide__head=HEAD,
            training__guide__rows="read",
            training__guide__words=options.words,
            training__guide__weight=options.weight,
        )
    start = ["--from", options.start, "--data", str(options.runs)]
    return train(case.configuration, options.runs / name, *start, *changes)


def scores(case: Case, model: str | Path, choice: Choice) -> dict[str, Any]:
    """Alignment error rates on the gold sentences, BLEU on the test file."""
    translator = Translator.open(model)
    links: dict[str, Any] = {}
    for name, gold in case.links().items():
        aligned = Aligner(translator.model, translator.tokenizers, choice).align(gold.words or [])
        errors = measure_alignment([each.links for each in aligned], gold.sure, gold.possible)
        best = choose(
            word_attentions(translator.model, translator.tokenizers, gold.words or []), gold
        )
        links[name] = {
            "aer": errors.aer,
            "precision": errors.precision,
            "recall": errors.recall,
            "best choice": str(best.best.choice),
            "aer of the best choice": best.best.scores.aer,
            "chosen on one half, measured on the other": [each.scores.aer for each in best.crossed],
        }
    pairs = read_pairs(case.file("test")).pairs
    translations = translator.translate([pair.source for pair in pairs])
    bleu = measure(
        [each.text for each in translations], [pair.target for pair in pairs], measures=["bleu"]
    )
    return {"read": str(choice), "links": links, "bleu": bleu.bleu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--eflomal", required=True, metavar="PROGRAM")
    parser.add_argument("--pair", choices=CASES, default="es-en")
    parser.add_argument("--start", default="es-en", help="the model to begin with")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--weight", type=float, default=0.5)
    parser.add_argument("--words", choices=("spaces", "marks"), default="spaces")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=["guided", "unguided"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    case = CASES[options.pair]
    prepare(case, options.runs, options.eflomal, options.words)
    table = {"as it was": scores(case, options.start, usual(3))}
    for name in options.only:
        run = trained(case, name, options)
        taught = Choice(layer=LAYER, head=HEAD, rows="read")
        row = scores(case, run, taught if name == "guided" else usual(3))
        table[name] = {**row, "steps": progress(run)["step"]}
        print(name, table[name], flush=True)
    if options.out:
        taught_with = {"weight": options.weight, "words": options.words}
        write(options.out, {"pair": options.pair, **taught_with, "table": table})


if __name__ == "__main__":
    main()
