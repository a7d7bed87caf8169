"""`regard doubts`: learn when the translations of a model are to be doubted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import corpora
from regard.cli.options.checks import check_writable
from regard.cli.options.model import DEFAULT_MODEL, Device, Model, open_translator
from regard.cli.output import report
from regard.cli.writing import writing
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.doubts import Doubts


def doubts(
    *,
    model: Model = DEFAULT_MODEL,
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    device: Device = "cpu",
) -> None:
    """Learn when a model's translations are to be doubted, and write it into the model's folder.

    From the training text: the language of the sources, how long translations are, and its words with their accents,
    names and numbers (words.json). From the validation text: which confidence is low, and what tells good
    translations. `regard train` does the same; this is for models of earlier versions.

    Args:
        data: Where the corpora of the model's training start, as of train.

    Examples:
        regard doubts --model runs/mine
        regard doubts --model runs/mine --data FOLDER
    """
    from regard.translation.calibration import calibrate
    from regard.translation.doubts import Doubts
    from regard.translation.opening import open_runs
    from regard.translation.runs.layout import DOUBTS, WORDS
    from regard.translation.text.corpora import by_people
    from regard.translation.training.data import read_data
    from regard.translation.words import KnownWords

    (model_run,), _ = open_runs(model)
    section = model_run.configuration.data
    if not section.training or not section.validation:
        raise ConfigurationError(
            f"{model}: doubts are learnt from training and validation files, and it names none"
        )
    for name in (DOUBTS, WORDS):
        check_writable(model_run.folder / name)
    folder = corpora.folder(section.paired_names, data, model_run.folder)
    with writing(model_run) as run:  # from before the model is read until its doubts are written
        corpus_data = read_data(section, folder, run.configuration.seed)
        pairs = by_people(corpus_data.train)
        KnownWords.learn(pairs).keep(run)
        statistics = Doubts.learn(pairs, corpus_data.valid)
        translator = open_translator(model, device, section.target_languages[0])
        statistics = calibrate(translator, statistics, corpus_data.valid)
        statistics.keep(run)
    low = (
        "too few lines to tell" if statistics.confidence is None else f"{statistics.confidence:.4f}"
    )
    report.say(
        f"learnt from {len(pairs):,} training pairs and {len(corpus_data.valid):,} validation pairs\n"
        f"low confidence, in mean log-probability of a piece: {low}\n{_learnt(statistics)}\n"
        f"wrote {DOUBTS} and {WORDS} in {run.folder}"
    )


def _learnt(statistics: Doubts) -> str:
    if statistics.quality is None:
        return "quality: too few good or bad lines to tell"
    limit = statistics.quality.limit
    return "quality: low " + ("nowhere" if limit is None else f"at and below {limit:.4f}")
