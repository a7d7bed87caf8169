"""`regard evaluate`: scores on a test set, with the signatures that let others repeat them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard import files
from regard.cli import options, streams
from regard.translation.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.configuration import Configuration
    from regard.translation.text.corpora import Pair
    from regard.translation.translator import Translator

EXAMPLES = """\b
Examples:
  regard evaluate --model es-en --source test.es --target test.en
  regard evaluate --model es-en --tsv test.tsv --source-column 1 --target-column 0
  regard evaluate --model runs/mine --tsv test.tsv --beam 10 --out translations.txt
  regard evaluate --model runs/dates --generated"""

# More at a time than a stream has: sentences of like length share a batch.
_CHUNK = 1024


def evaluate(
    model: options.Model = options.DEFAULT_MODEL,
    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sentences, one a line.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Their translations, line for line.")
    ] = None,
    tsv: Annotated[Path | None, typer.Option(metavar="FILE", help="Both, in columns.")] = None,
    source_column: Annotated[
        int | None, typer.Option(help="Column of --tsv, from 0. [default: as in the training]")
    ] = None,
    target_column: Annotated[
        int | None, typer.Option(help="Column of --tsv, from 0. [default: as in the training]")
    ] = None,
    generated: Annotated[
        bool,
        typer.Option("--generated", help="The held-out part of the data the model's task makes."),
    ] = False,
    beam: Annotated[
        int | None, typer.Option(help="Hypotheses kept; 1 is greedy. [default: the model's own]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations there, too.")
    ] = None,
    device: options.Device = "cpu",
) -> None:
    """Translate a test set and score it: BLEU, chrF, TER and exact matches, by sacreBLEU.

    Every line counts, an empty one too. A file that is not here is looked for in REGARD_DATA.
    """
    if [source is not None or target is not None, tsv is not None, generated].count(True) != 1:
        raise ConfigurationError("give --source and --target, or --tsv, or --generated")
    if (source is None) != (target is None):
        raise ConfigurationError("--source and --target belong together: give both")
    for name, column in (("--source-column", source_column), ("--target-column", target_column)):
        if column is not None and not 0 <= column <= 1000:
            raise ConfigurationError(f"{name} {column}: use a whole number, 0 to 1000")
    if out is not None:
        options.check_writable(out)

    from regard.translation.decoding.search import Search
    from regard.translation.evaluation.scores import measure
    from regard.translation.text.corpora import Parallel, Tsv, read_aligned

    if beam is not None:
        Search(beam=beam)  # refuses what is out of range before a model is opened
    pairs: Sequence[Pair] = []
    if source is not None and target is not None:
        source, target = _corpus(source), _corpus(target)
        pairs = _usable(read_aligned(Parallel(source, target)), f"{source} and {target}")
    translator = options.open_translator(model, device)
    configuration = translator.run.configuration
    if tsv is not None:
        data = configuration.data
        columns = (
            data.source_column if source_column is None else source_column,
            data.target_column if target_column is None else target_column,
        )
        tsv = _corpus(tsv)
        pairs = _usable(read_aligned(Tsv(tsv, *columns)), str(tsv))
    if generated:
        pairs = _generated(configuration, model)
    texts = _translations(translator, [pair.source for pair in pairs], beam)
    if out is not None:
        files.write(out, "".join(f"{text}\n" for text in texts).encode("utf-8"))
    empty = sum(not pair.source or not pair.target for pair in pairs)
    print(
        f"{len(pairs)} sentence pairs, {empty} with an empty side; beam {beam or translator.search.beam}"
    )
    print(measure(texts, [pair.target for pair in pairs]))


def _corpus(path: Path) -> Path:
    """The file itself, or else the one of that name in the folder that REGARD_DATA names."""
    folder = os.environ.get("REGARD_DATA")
    if folder and not path.exists() and (Path(folder) / path).exists():
        return Path(folder) / path
    return path


def _usable(pairs: list[Pair], name: str) -> list[Pair]:
    if not any(pair.source and pair.target for pair in pairs):
        raise DataError(f"{name}: no usable sentence pairs in {len(pairs)} lines")
    return pairs


def _generated(configuration: Configuration, model: str) -> list[Pair]:
    from regard.translation.text.generated import generate

    made = configuration.data.generated
    if made is None:
        raise ConfigurationError(
            f"--generated: {model} was trained on files: give --source and --target, or --tsv"
        )
    return generate(made.task, configuration.seed, made.test, "test")


def _translations(translator: Translator, sources: list[str], beam: int | None) -> list[str]:
    texts: list[str] = []
    chunks: Iterable[list[str]] = streams.chunks(sources, _CHUNK)
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        number = (len(sources) + _CHUNK - 1) // _CHUNK
        chunks = track(chunks, "translating", number, console=Console(stderr=True), transient=True)
    for chunk in chunks:
        texts += [translation.text for translation in translator.translate(chunk, beam=beam)]
    return texts
