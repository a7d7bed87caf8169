"""`regard data back-translate`: monolingual text into a training file, with a model of the other direction."""

from __future__ import annotations

import json
import os
import signal
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import card
from regard.cli.options import corpora
from regard.cli.options.checks import check_whole, check_writable
from regard.cli.options.model import MODEL, Device, To, open_translator
from regard.cli.options.search import SamplingOptions, SearchOptions
from regard.cli.output import report, streams
from regard.cli.signals import Signals
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.synthesis.filtering import Tally


def back_translate(
    *,
    context: typer.Context,
    text: Annotated[Path, typer.Argument(metavar="TEXT")],
    model: Annotated[str, MODEL],
    out: Path,
    to: To = None,
    resume: bool = False,
    search: SearchOptions,
    sampling: SamplingOptions,
    column: int | None = None,
    longest: int = 250,
    ratio: float = 3.0,
    tag: Annotated[str, typer.Option(metavar="NAME")] = "bt",
    device: Device = "cpu",
) -> None:
    """Translate monolingual text back: a table of synthetic sources and real targets.

    Repeated, empty and long sentences are left out, and pairs whose lengths are too different for translations. Ctrl-C
    finishes the current batch and ends; --resume continues. Without --seed, sampling uses seed 1. A file that is not
    here is looked for in REGARD_DATA.

    Args:
        text: Sentences of the target language, one a line, plain or packed.
        model: The model that translates them into the source language.
        out: The new table of sentence pairs.
        resume: Continue a table that is not finished.
        column: The column of the sentences, from 0, where TEXT is a table.
        longest: Leave out sentences of more pieces.
        ratio: Leave out pairs of which one side has so many times as many pieces.
        tag: The tag of the configuration that is printed.

    Examples:
        regard data back-translate news.en --model runs/en-es --out news.tsv
        regard data back-translate news.en --model runs/en-es --out news.tsv --sample
        regard data back-translate news.en --model runs/en-es --out news.tsv --resume
    """
    sampling.check()
    search.check(**sampling.changes)
    if column is not None:
        check_whole("--column", column, 0, 1000)
    check_writable(out)
    text = corpora.locate(text)
    streams.output()

    from regard.translation.settings.data import check_tag
    from regard.translation.synthesis.back_translation import BackTranslation
    from regard.translation.synthesis.filtering import PairFilter
    from regard.translation.text.corpora import open_text

    PairFilter(longest, ratio)  # refuses what is out of range
    try:
        check_tag(tag)
    except ValueError as fault:
        raise ConfigurationError(f"--tag {tag}: {fault}") from None
    if not _is_read_once(text):
        open_text(text).close()
    with Signals() as signals:
        translator = open_translator(model, device, to)
        work = BackTranslation(
            text,
            out,
            translator,
            search.of(translator.search, **sampling.changes),
            seed=1 if sampling.seed is None else sampling.seed,
            longest=longest,
            ratio=ratio,
            column=column,
            **search.batches,
        )
        with signals.saving(), report.counted("lines", _lines(text)) as show:

            def report_tally(tally: Tally) -> None:
                show(tally.read, f", {tally.written:,} pairs")

            outcome, tally = work.run(
                resume=resume, should_stop=signals.stop, progress=report_tally
            )
    if outcome == "stopped":
        arguments = [each for each in context.obj if each != "--resume"]
        command = card.typed([*arguments, "--resume"])
        report.say(f"stopped after {tally.read:,} lines; go on with: {command}", flush=True)
        raise typer.Exit(128 + (signals.received or signal.SIGTERM))
    report.say(
        f"{out}: {tally.written:,} sentence pairs of {tally.read:,} lines\n"
        f"left out: {tally.left_out() or 'none'}\n"
        "To learn from them, too, add to a configuration (its own train files as [[data.train]], too):\n\n"
        f"[[data.train]]\ntsv = {json.dumps(str(out), ensure_ascii=False)}\n"
        f'source_column = 0\ntarget_column = 1\ntag = "{tag}"\nsynthetic = true',
        flush=True,
    )


def _is_read_once(text: Path) -> bool:
    """Whether to open it is to use it up: a pipe, a terminal."""
    return os.path.exists(text) and not os.path.isfile(text) and not os.path.isdir(text)


def _lines(text: Path) -> int | None:
    """How many lines a file has; None where reading it would use it up, or is not to be done twice."""
    from regard.translation.text.corpora import open_text

    if _is_read_once(text):
        return None
    try:
        with open_text(text) as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    except (OSError, EOFError, zlib.error):  # told with its line by who reads it
        return None
