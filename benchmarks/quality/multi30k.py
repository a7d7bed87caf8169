"""Multi30k captions beside published figures: a Transformer of under three million parameters.

REGARD_DATA=data python benchmarks/quality/multi30k.py RUNS [--only de fr] [--out benchmarks/results/multi30k.json]

Trains multi30k-en-de and multi30k-en-fr (RUNS/m30k-de, RUNS/m30k-fr; interrupted trainings are resumed),
then translates all three test sets with beam 5, with the length penalty of the configuration and with
the one that the validation set would choose. Published for Transformer-Tiny (4 + 4 layers of width
128, text only; Wu et al. 2021, arXiv 2105.14462): 41.0 to German, 61.8 to French on
test_2016_flickr, in BLEU of lower-cased text by the Moses tokenizer. The same here: sacremoses (pip
install sacremoses) on both sides, then BLEU as it stands; and sacreBLEU's default beside it.
Multi30k is for research: models of it are not to be shipped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from sacremoses import MosesTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from _training import progress, train

from regard.translation.decoding.search import Search
from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Parallel, read_pairs
from regard.translation.translator import Translator

PUBLISHED = {"de": 41.0, "fr": 61.8}
PENALTIES = (0.6, 1.0, 1.5, 2.0, 2.5, 3.0)
VALID = "val"
SETS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")


def lower_cased_bleu(texts: list[str], references: list[str], language: str) -> float:
    """BLEU of lower-cased text by the Moses tokenizer, as the captions' papers have it."""
    moses = MosesTokenizer(lang=language)

    def prepared(lines: list[str]) -> list[str]:
        return [moses.tokenize(line.lower(), return_str=True, escape=False) for line in lines]

    return BLEU(tokenize="none").corpus_score(prepared(texts), [prepared(references)]).score


def pairs_of(name: str, language: str) -> tuple[list[str], list[str]]:
    folder = Path(os.environ["REGARD_DATA"]) / "multi30k-task1"
    pairs = read_pairs(Parallel(folder / f"{name}.en.gz", folder / f"{name}.{language}.gz")).pairs
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def quality(translator: Translator, search: Search, name: str, language: str) -> dict[str, Any]:
    sources, references = pairs_of(name, language)
    texts = [each.text for each in translator.translate(sources, search=search)]
    scores = measure(texts, references, measures=["bleu", "chrf"])
    return {
        "lines": len(sources),
        "tokenised, lower-cased BLEU": lower_cased_bleu(texts, references, language),
        "BLEU": scores.bleu,
        "chrF": scores.chrf,
        "signature": scores.signatures["bleu"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--only", nargs="+", choices=PUBLISHED, default=list(PUBLISHED))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table: dict[str, Any] = {}
    for language in options.only:
        run = train(f"multi30k-en-{language}", options.runs / f"m30k-{language}")
        translator = Translator.open(run)
        took = progress(run)
        searches = [translator.search.changed(length_penalty=penalty) for penalty in PENALTIES]
        valid = {
            each.length_penalty: quality(translator, each, VALID, language)["BLEU"]
            for each in searches
        }
        search = max(searches, key=lambda each: valid[each.length_penalty])
        table[language] = {
            "parameters": sum(each.numel() for each in translator.model.parameters()),
            "steps": took["step"],
            "minutes": took["seconds"] / 60,
            "published": PUBLISHED[language],
            "validation BLEU by length penalty": valid,
            "sets": {
                f"length penalty {each.length_penalty}": {
                    name: quality(translator, each, name, language) for name in SETS
                }
                for each in (translator.search, search)
            },
        }
        print(language, table[language], flush=True)
    if options.out:
        write(options.out, {"table": table})


if __name__ == "__main__":
    main()
