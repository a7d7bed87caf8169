"""`regard data split`: one corpus into train, valid and test that have no sentence in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options.checks import check_parent, check_whole
from regard.cli.options.corpora import CorpusOptions
from regard.cli.output import report
from regard.errors import DataError, RegardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.translation.text.corpora import Pair


def split(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR")],
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILES")] = None,
    corpus: CorpusOptions,
    valid: int = 1000,
    test: int = 1000,
    seed: int = 1,
) -> None:
    """Part a corpus at random into DIR/train.tsv, valid.tsv and test.tsv: source, tab, target.

    Repeated pairs are left out. Pairs with a sentence in common, but for case and punctuation, go to the same part, and
    so does what they lead to. Sentences are written normalised. The same seed gives the same parts. A file that is not
    here is looked for in REGARD_DATA.

    Args:
        out: A new folder for the parts.
        files: Tables of tab-separated columns, taken together.
        valid: Pairs to choose models by.
        test: Pairs to measure them with.
        seed: Of the draw.

    Examples:
        regard data split corpus.tsv --out parts
        regard data split --source corpus.es --target corpus.en --out parts --valid 2000 --test 2000
        regard data split one.tsv two.tsv --source-column 1 --target-column 0 --out parts --seed 7
    """
    for name, count in (("--valid", valid), ("--test", test)):
        check_whole(name, count, 0, 10_000_000)
    check_whole("--seed", seed, 0, 2**63 - 1)
    _check_new(out)

    from regard.translation.text import splitting
    from regard.translation.text.corpora import read_pairs

    found: list[Pair] = []
    empty = 0
    for one in corpus.corpora(files):
        own = read_pairs(one)
        found += own.pairs
        empty += own.skipped
    if not found:
        raise DataError(f"no usable sentence pairs ({empty} with an empty side)")
    parts = splitting.split(found, valid=valid, test=test, seed=seed)
    made = {"train": parts.train, "valid": parts.valid, "test": parts.test}
    _write(out, {f"{name}.tsv": pairs for name, pairs in made.items() if pairs})
    rows = [["", "pairs"], *([f"{name}.tsv", f"{len(p):,}"] for name, p in made.items() if p)]
    report.say(
        f"{report.table(rows)}\n\nleft out: {empty:,} with an empty side, {parts.repeated:,} repeated\n"
        f"{parts.families:,} families of pairs that share a sentence, the largest of {parts.largest:,}\n"
        f"wrote {out}"
    )


def _check_new(out: Path) -> None:
    """Raises `RegardError` when no new folder can be made there: before the work, not after it."""
    if os.path.lexists(out):
        raise RegardError(f"{out}: is there already: choose a new folder")
    check_parent(out)


def _write(out: Path, parts: dict[str, Sequence[Pair]]) -> None:
    """All parts or none."""
    from regard import files

    try:
        with files.new_folder(out) as unfinished:
            for name, pairs in parts.items():
                text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
                files.write(unfinished / name, text.encode())
    except OSError as fault:
        raise RegardError(f"{out}: cannot be written: {fault.strerror}") from None
