"""What guided attention does for word links, and what it costs in translation.

python benchmarks/quality/guided.py RUNS --eflomal eflomal-align [--steps 2500] [--threads 1]
    [--only guided unguided] [--out benchmarks/results/guided.json]

The bundled es-en is trained on, on the same Tatoeba sentences (the folder REGARD_DATA names): once with
one head taught the links that eflomal finds in them, once without, all else equal. Links of the gold
sentences are read off that head as it was taught, nothing chosen; for the model without, off the usual
layer. BLEU is of test.tsv. Trainings that were interrupted go on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _eflomal import align
from _measure import write
from _training import progress, settings, train

from regard.translation.aligning.aligner import Aligner
from regard.translation.aligning.choice import Choice, usual
from regard.translation.evaluation.alignment import measure_alignment
from regard.translation.evaluation.gold import read_gold
from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Tsv, read_aligned, read_pairs
from regard.translation.translator import Translator

CORPUS, GOLD = "tatoeba-spa-eng", "wa-golden-europarl/en-es.dev.jsonl"
LAYER, HEAD = 1, 0


def prepare(folder: Path, program: str) -> None:
    """The corpus, and beside it the links of its training pairs."""
    corpus, given = folder / CORPUS, Path(os.environ["REGARD_DATA"]) / CORPUS
    corpus.mkdir(parents=True, exist_ok=True)
    for part in ("train.tsv", "valid.tsv"):
        if not (corpus / part).exists():
            (corpus / part).symlink_to((given / part).resolve())
    links = corpus / "train.links"
    if not links.exists():
        pairs = read_aligned(Tsv(given / "train.tsv", source_column=1, target_column=0))
        found = align(program, [(pair.source.split(), pair.target.split()) for pair in pairs])
        lines = (" ".join(f"{a}-{b}" for a, b in sorted(each)) for each in found)
        links.write_text("".join(f"{line}\n" for line in lines))


def trained(folder: Path, name: str, steps: int, threads: int) -> Path:
    """The bundled model after some more steps."""
    chosen = settings(
        training__max_steps=steps,
        training__learning_rate=3e-4,
        training__warmup=200,
        training__validate_every=max(1, steps // 5),
        training__threads=threads,
    )
    if name == "guided":
        chosen += settings(
            data__train__links=f"{CORPUS}/train.links",
            training__guide__layer=LAYER,
            training__guide__head=HEAD,
            training__guide__rows="read",
        )
    start = ["--from", "es-en", "--data", str(folder)]
    return train("tatoeba-es-en", folder / name, *start, *chosen)


def scores(model: str | Path, choice: Choice) -> dict[str, Any]:
    """Alignment error rate on the gold sentences, BLEU on the test file."""
    data = Path(os.environ["REGARD_DATA"])
    translator, gold = Translator.open(model), read_gold(data / GOLD).flipped()
    aligned = Aligner(translator.model, translator.tokenizers, choice).align(gold.words or [])
    found = measure_alignment([each.links for each in aligned], gold.sure, gold.possible)
    pairs = read_pairs(Tsv(data / CORPUS / "test.tsv", source_column=1, target_column=0)).pairs
    translations = translator.translate([pair.source for pair in pairs])
    bleu = measure(
        [each.text for each in translations], [pair.target for pair in pairs], measures=["bleu"]
    )
    return {
        "read": str(choice),
        "aer": found.aer,
        "precision": found.precision,
        "recall": found.recall,
        "bleu": bleu.bleu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--eflomal", required=True, metavar="PROGRAM")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=["guided", "unguided"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    prepare(options.runs, options.eflomal)
    table = {"as bundled": scores("es-en", usual(3))}
    for name in options.only:
        run = trained(options.runs, name, options.steps, options.threads)
        taught = Choice(layer=LAYER, head=HEAD, rows="read")
        found = scores(run, taught if name == "guided" else usual(3))
        table[name] = {**found, "steps": progress(run)["step"]}
        print(name, table[name], flush=True)
    if options.out:
        write(options.out, {"gold": GOLD, "table": table})


if __name__ == "__main__":
    main()
