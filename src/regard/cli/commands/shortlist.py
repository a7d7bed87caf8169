"""`regard shortlist`: learn lists of likely translations, so that a search computes fewer words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import corpora
from regard.cli.options.checks import check_whole, check_writable
from regard.cli.options.corpora import CorpusOptions
from regard.cli.options.model import DEFAULT_MODEL, Model
from regard.cli.output import report
from regard.cli.writing import writing
from regard.errors import ConfigurationError, memory_named

if TYPE_CHECKING:
    from regard.translation.runs import Run
    from regard.translation.text.corpora import Pair


def shortlist(
    *,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILES")] = None,
    model: Model = DEFAULT_MODEL,
    corpus: CorpusOptions,
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    each: int = 100,
    always: int = 200,
) -> None:
    """Learn from sentence pairs which words translate which, and write a short list for each into the model's folder.

    `regard translate --shortlist` then chooses among the lists of a sentence's words, which is quicker. One pair in a
    hundred is held out to measure the lists. A file that is not here is looked for in
    REGARD_DATA.

    Args:
        files: Tables of sentence pairs. [default: the model's training corpora]
        data: Where the corpora of the model's training start, as of train.
        each: Translations kept of each word piece.
        always: Of the most frequent pieces, which any sentence may have.

    Examples:
        regard shortlist --model runs/mine
        regard shortlist --model runs/mine --data FOLDER --each 200
        regard shortlist --model runs/mine --source text.es --target text.en
        regard translate --model runs/mine --shortlist < text.es > text.en
    """
    for name, count in (("--each", each), ("--always", always)):
        check_whole(name, count, 1, 10_000)
    named = bool(files or corpus.source or corpus.target)
    if not files and (corpus.source_column, corpus.target_column) != (0, 1):
        raise ConfigurationError(
            "--source-column and --target-column are for FILES: leave them out"
        )
    if named and data is not None:
        raise ConfigurationError("--data is for the model's training corpora: give it, or files")

    from regard.translation.opening import open_runs
    from regard.translation.runs.layout import SHORTLIST
    from regard.translation.shortlist.lexicon import ROUNDS
    from regard.translation.shortlist.making import make
    from regard.translation.text.corpora import read_pairs

    (opened,), tokenizers = open_runs(model)
    check_writable(opened.folder / SHORTLIST)
    with writing(opened) as run:
        if named:
            pairs = [pair for one in corpus.corpora(files) for pair in read_pairs(one).pairs]
        else:
            pairs = _learnt_from(run, data)
        with memory_named("while learning which words translate which", "the number of pairs"):
            made = make(pairs, tokenizers, each, always, report.tracked(ROUNDS, "learning"))
        path = made.shortlist.keep(run, tokenizers)
    report.say(
        f"learnt from {made.learnt:,} sentence pairs, left out {made.left_out:,}; of {made.measured:,} others\n"
        f"{100 * made.coverage.words:.1f}% of the target's word pieces are on their sentence's list, all of them in "
        f"{100 * made.coverage.sentences:.1f}% of the sentences\n"
        f"a list has {made.coverage.length:.0f} of {len(tokenizers.target):,} pieces in the mean\n"
        f"wrote {path}"
    )


def _learnt_from(run: Run, data: Path | None) -> list[Pair]:
    """The training pairs of a run, without those that models made before its training."""
    from regard.translation.training.data import read_split

    section = run.configuration.data
    if section.generated is None and not section.training:
        raise ConfigurationError(
            f"{run.folder}: does not name its training corpora: give FILES, or --source and --target"
        )
    names = [name for files in section.paired for name in files.names]
    folder = corpora.folder(names, data, run.folder)
    return read_split(section, "train", folder, run.configuration.seed).pairs
