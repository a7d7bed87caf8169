"""`regard remember`: a memory of sentence pairs, which a model reads while it translates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import shipped
from regard.cli.options import corpora
from regard.cli.options.checks import check_columns, check_whole
from regard.cli.options.model import Device, open_translator
from regard.cli.output import report, streams
from regard.cli.signals import Signals
from regard.errors import ConfigurationError


def remember(
    *,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=shipped.complete_model)],
    pairs: Annotated[list[Path] | None, typer.Argument(metavar="TSV")] = None,
    to: Annotated[Path, typer.Option(metavar="FOLDER")],
    source_column: int | None = None,
    target_column: int | None = None,
    tune: Annotated[Path | None, typer.Option(metavar="TSV")] = None,
    similar: Annotated[int, typer.Option(metavar="N")] = 0,
    lists: Annotated[int | None, typer.Option(metavar="N")] = None,
    device: Device = "cpu",
) -> None:
    """Keep sentence pairs in a memory for `regard translate --memory`: terms and old translations, without training.

    Pairs that the memory has are left out, so the same command goes on after an interruption. A memory belongs to
    the model that made it. A file that is not here is looked for in REGARD_DATA.

    Args:
        model: A bundled model's name or a run folder.
        pairs: Tables of sentence pairs with tabs between the columns: translations, or a glossary.
        to: The folder of the memory; one that is there gets the new pairs.
        source_column: Column of the sources, from 0. [default: as in the training]
        target_column: Column of the targets, from 0. [default: as in the training]
        tune: Choose how the memory is mixed in, on this table: neighbours, temperature and weight.
        similar: With --tune: read the N pairs that are most similar to each sentence.
        lists: With --tune: read N lists of near states. [default: 4, or 0 with --similar]
        device: Where to compute: cpu, cuda, cuda:1, mps.

    Examples:
        regard remember es-en translated.tsv glossary.tsv --to memory
        regard remember es-en more.tsv --to memory
        regard remember es-en --to memory --tune valid.tsv
    """
    if not pairs and tune is None:
        raise ConfigurationError("TSV is missing: name a table of sentence pairs, or --tune")
    check_columns(source_column or 0, target_column or 0)
    check_whole("--similar", similar, 0, 1024)
    check_whole("--lists", lists or 0, 0, 65536)
    if lists is not None and tune is None:
        raise ConfigurationError("--lists belongs to --tune: name a table")
    if similar and tune is None:
        raise ConfigurationError(
            "--similar belongs to --tune here; `regard translate --similar` reads so many once"
        )
    streams.output()
    from regard.translation import remembering
    from regard.translation.text.corpora import Pair, Tsv, read_pairs

    translator = open_translator(model, device)
    data = translator.run.configuration.data
    columns = (
        data.source_column if source_column is None else source_column,
        data.target_column if target_column is None else target_column,
    )

    def read(path: Path) -> list[Pair]:
        return read_pairs(Tsv(corpora.locate(path), *columns)).pairs

    tables = [pair for path in pairs or [] for pair in read(path)]
    valid = None if tune is None else read(tune)
    with Signals():
        if pairs:
            with report.counted("sentence pairs", None) as show:
                new = remembering.remember(translator, tables, to, progress=show)
            with translator.datastore(to) as datastore:
                report.say(
                    f"{to}: {new:,} new sentence pairs, {datastore.sentences:,} in all, "
                    f"{len(datastore):,} entries"
                )
        if valid is not None:
            mixing, trials = remembering.tune(
                translator,
                valid,
                to,
                similar=similar,
                lists=lists,
                tracked=lambda weights: report.tracked(weights, "weights", len(weights)),
            )
            rows = [["weight", "BLEU", "chrF"]]
            rows += [[f"{t.weight:.1f}", f"{t.bleu:.2f}", f"{t.chrf:.2f}"] for t in trials]
            report.say(report.table(rows))
            report.say(
                f"chosen: weight {mixing.weight}, {mixing.neighbours} neighbours, "
                f"temperature {mixing.temperature}, reach {mixing.reach}, likeness {mixing.likeness}"
            )
