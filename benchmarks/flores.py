"""Our Spanish to English models beside the systems that people know, on FLORES dev.

python benchmarks/flores.py [MODEL ...] [--out benchmarks/results/flores.json]

FLORES dev is 997 sentences of news and guides, Spanish and English (Goyal et al. 2022, arXiv 2106.03193, CC BY-SA 4.0).
The folder flores-es-en, in the folder REGARD_DATA names, has them with the outputs of some systems, and the BLEU and
COMET that were published for all of them with the translation models of Firefox. Every output there is, ours and
theirs, is scored by sacreBLEU here; published figures are in columns of their own. Nothing was trained on these
sentences or chosen by them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from _measure import write

from regard.translation.evaluation.scores import measure
from regard.translation.translator import Translator

OURS = ("es-en", "es-en-tiny", "es-en-recurrent")
PREFIX = "flores-dev"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


def scored(texts: list[str], references: list[str]) -> dict[str, Any]:
    figures = measure(texts, references, measures=["bleu", "chrf"])
    words = sum(len(text.split()) for text in texts) / sum(len(text.split()) for text in references)
    return {"bleu": figures.bleu, "chrf": figures.chrf, "words of the reference": round(words, 3)}


def theirs(folder: Path, references: list[str]) -> dict[str, dict[str, Any]]:
    """Each system with its published figures, and with our scores of its output where there is one."""
    table: dict[str, dict[str, Any]] = {}
    for published in sorted(folder.glob(f"{PREFIX}.*.en.bleu")):
        name = published.name.removeprefix(f"{PREFIX}.").removesuffix(".en.bleu")
        output, comet = published.with_suffix(""), published.with_suffix(".comet")
        table[name] = {
            **(scored(lines(output), references) if output.exists() else {}),
            "published bleu": float(published.read_text()),
            "published comet": float(comet.read_text()),
        }
    return table


def row_text(row: dict[str, Any]) -> str:
    names = {"bleu": 2, "chrf": 2, "published bleu": 1, "published comet": 4}
    return "".join(
        f" {format(row[name], f'.{digits}f') if name in row else '':>8} |"
        for name, digits in names.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=OURS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/flores.json"))
    options = parser.parse_args()
    folder = Path(os.environ["REGARD_DATA"]) / "flores-es-en"
    sources, references = (lines(folder / f"{PREFIX}.{side}") for side in ("es", "en"))
    table = theirs(folder, references)
    for model in options.models:
        translations = [one.text for one in Translator.open(model).translate(sources)]
        table[Path(model).name] = scored(translations, references)
    ranked = sorted(
        table, key=lambda name: -table[name].get("bleu", table[name].get("published bleu"))
    )
    print("| system | BLEU | chrF | published BLEU | published COMET |\n|---|---|---|---|---|")
    for name in ranked:
        print(f"| {name:20} |{row_text(table[name])}")
    write(options.out, {"sentences": len(sources), "table": {name: table[name] for name in ranked}})


if __name__ == "__main__":
    main()
