"""`regard data split`: one corpus into train, valid and test that have no sentence in common."""

import os
from pathlib import Path
from typing import Annotated

import typer

from regard import files as file_writing
from regard.cli.options.checks import check_parent, check_whole
from regard.cli.options.corpora import CorpusOptions
from regard.cli.output import report
from regard.errors import DataError, RegardError, raised_as


def split(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR")],
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILES")] = None,
    corpus: CorpusOptions,
    valid: int | None = None,
    test: int | None = None,
    seed: int = 1,
) -> None:
    """Part a corpus at random into DIR/train.tsv, valid.tsv and test.tsv: source, tab, target.

    Repeated pairs are left out. Pairs with a sentence in common, but for case and punctuation, go to the same part, and
    so does what they lead to. Sentences are written normalised. The same seed gives the same parts. A file that is not
    here is looked for in REGARD_DATA.

    Args:
        out: A new folder for the parts.
        files: Tables of tab-separated columns, or TMX, taken together.
        valid: Pairs to choose models by. [default: 1000; a tenth of the pairs if there are fewer than 10,000]
        test: Pairs to measure them with. [default: as for --valid]
        seed: Of the draw.

    Examples:
        regard data split corpus.tsv --out parts
        regard data split --source corpus.es --target corpus.en --out parts --valid 2000 --test 2000
        regard data split one.tsv two.tsv --source-column 1 --target-column 0 --out parts --seed 7
    """
    for name, count in (("--valid", valid), ("--test", test)):
        if count is not None:
            check_whole(name, count, 0, 10_000_000)
    check_whole("--seed", seed, 0, 2**63 - 1)
    if os.path.lexists(out):
        raise RegardError(f"{out}: is there already: choose a new folder")
    check_parent(out)

    from regard.translation.text import splitting
    from regard.translation.text.corpora import read_pairs

    read = [read_pairs(one) for one in corpus.corpora(files)]
    pairs = [pair for corpus_pairs in read for pair in corpus_pairs.pairs]
    empty = sum(corpus_pairs.skipped for corpus_pairs in read)
    if not pairs:
        raise DataError(f"no usable sentence pairs ({empty} with an empty side)")
    splits = splitting.split(pairs, valid=valid, test=test, seed=seed)
    for note in splits.notes:
        report.note(note)
    files_written = {"train.tsv": splits.train, "valid.tsv": splits.valid, "test.tsv": splits.test}
    files_written = {name: pairs for name, pairs in files_written.items() if pairs}
    with (
        raised_as(RegardError, f"{out}: cannot be written"),
        file_writing.new_folder(out) as folder,
    ):
        for name, pairs in files_written.items():
            text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
            file_writing.write(folder / name, text.encode())
    rows = [["", "pairs"], *([name, f"{len(pairs):,}"] for name, pairs in files_written.items())]
    report.say(
        f"{report.table(rows)}\n\nleft out: {empty:,} with an empty side, {splits.repeated:,} repeated\n"
        f"{splits.families:,} families of pairs that share a sentence, the largest of {splits.largest:,}\n"
        f"wrote {out}"
    )
