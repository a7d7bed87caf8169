"""Each option of [data.noise] left out in turn: small models of equal steps, on text that is written otherwise.

python benchmarks/quality/noise.py RUNS [--steps 800] [--threads 1] [--only NAME ...]
    [--out benchmarks/results/noise.json]

Spanish to English on Tatoeba (the folder REGARD_DATA names): tatoeba-es-en-tiny with smaller layers. One model has all
the options of that configuration, one has none, and each other lacks one. Each is measured on the validation file, all
words read as they are written. Trainings that were interrupted go on; finished ones are only measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import robustness
from _measure import write
from _training import progress, settings, train_to

from regard.translation.settings.data import NoiseSettings
from regard.translation.text.letters import in_title_case
from regard.translation.training.data import read_split
from regard.translation.training.noise import emphasised
from regard.translation.translator import Translator

CONFIGURATION = "tatoeba-es-en-tiny"
SIZES: dict[str, object] = {
    "model__width": 128,
    "model__feed_forward": 512,
    "model__encoder_layers": 2,
    "tokenizer__vocabulary_size": 4000,
    "training__warmup": 100,
    "training__validate_sentences": 100,
}
OPTIONS = tuple(NoiseSettings.model_fields)
LACKING = {"all": (), **{name: (name,) for name in OPTIONS}, "none": OPTIONS}


def measured(run: Path) -> dict[str, Any]:
    """The rows of robustness.py, two for `title` and `capitals`, and the whole validation file."""
    translator = Translator.open(run)
    translator.search = translator.search.as_written()
    configuration = translator.run.configuration
    data = Path(os.environ["REGARD_DATA"])
    pairs = read_split(configuration.data, "valid", data, configuration.seed).pairs
    rows = robustness.table(translator, pairs, 500)
    lines = Random(robustness.SEED).sample(pairs, 500)
    random = Random(robustness.SEED)
    more = {
        "Title Case": [pair._replace(source=in_title_case(pair.source)) for pair in lines],
        "one WORD in capitals": [
            pair._replace(source=emphasised(pair.source, random)) for pair in lines
        ],
        "the validation file": pairs,
    }
    for name, row in more.items():
        rows[name] = {"bleu": robustness.bleu(translator, row, False), "lines": len(row)}
    return {"bleu": rows, "copied": robustness.templates(translator)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=LACKING, default=list(LACKING))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table: dict[str, Any] = {}
    for name in options.only:
        off = {f"data__noise__{each}": 0 for each in LACKING[name]}
        changes = {**SIZES, **off, "training__threads": options.threads}
        run = train_to(options.steps, CONFIGURATION, options.runs / name, *settings(**changes))
        print(f"with {name}" if name in ("all", "none") else f"without {name}", flush=True)
        table[name] = {"target_tokens": progress(run)["target_tokens"], **measured(run)}
    if options.out:
        result = {"configuration": CONFIGURATION, "sizes": SIZES, "steps": options.steps}
        write(options.out, {**result, "lacking": table})


if __name__ == "__main__":
    main()
