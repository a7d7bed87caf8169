"""BLEU of a model on lines of several sentences, translated sentence by sentence and as a whole.

Lines of 1, 2, 3, 4 and 8 sentences are made of the first 1,920 pairs of Tatoeba's Spanish and English validation text.

    REGARD_DATA=FOLDER python benchmarks/quality/sentences.py [--model es-en]
"""

import argparse
import json
import os
import sys
from pathlib import Path

from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Pair, Tsv, read_aligned
from regard.translation.text.sentences import of_line
from regard.translation.translator import Translator

sys.path.insert(0, str(Path(__file__).parents[1]))
from _measure import write

RESULTS = Path(__file__).parents[1] / "results" / "sentences.json"
PAIRS, COUNTS = 1920, (1, 2, 3, 4, 8)


def join(pairs: list[Pair], count: int) -> list[Pair]:
    """Pairs of so many sentences on a line."""
    groups = [pairs[i : i + count] for i in range(0, len(pairs), count)]
    return [
        Pair(" ".join(one.source for one in group), " ".join(one.target for one in group))
        for group in groups
    ]


def scored(translator: Translator, pairs: list[Pair], *, whole_lines: bool) -> dict[str, float]:
    translations = translator.translate([pair.source for pair in pairs], whole_lines=whole_lines)
    references = [pair.target for pair in pairs]
    bleu = measure([one.text for one in translations], references, measures=("bleu",)).bleu or 0.0
    return {"bleu": round(bleu, 2), "loops": sum(one.repeats for one in translations)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="es-en")
    model = parser.parse_args().model
    folder = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng"
    pairs = read_aligned(Tsv(folder / "valid.tsv", 1, 0))[:PAIRS]
    translator = Translator.open(model)
    rows = []
    for count in COUNTS:
        lines = join(pairs, count)
        alone = [[part.text for part in of_line(pair.source, "es")] for pair in pairs]
        groups = [alone[i : i + count] for i in range(0, len(pairs), count)]
        expected = [[text for texts in group for text in texts] for group in groups]
        divided = [[part.text for part in of_line(line.source, "es")] for line in lines]
        rows.append(
            {
                "sentences": count,
                "lines": len(lines),
                "divided_where_joined": sum(map(list.__eq__, divided, expected)) / len(lines),
                "sentence_by_sentence": scored(translator, lines, whole_lines=False),
                "whole_lines": scored(translator, lines, whole_lines=True),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    write(RESULTS, {"model": model, "rows": rows})


if __name__ == "__main__":
    main()
