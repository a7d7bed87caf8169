"""`regard data check`: measure a corpus and find its faults before a training."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options.checks import check_picture, check_writable
from regard.cli.options.corpora import CorpusOptions
from regard.cli.options.model import MODEL
from regard.cli.output import drawing, report
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.text.checking.corpus import Report
    from regard.translation.text.corpora import Corpus
    from regard.translation.text.tokenizer import Tokenizer

_KINDS = ("pairs", "sources", "targets")
_LENGTHS = ("mean", "median", "p95", "p99", "longest", "total")
_VOCABULARY = {
    "size": "size",
    "pieces": "pieces in the text",
    "pieces_per_word": "pieces a word",
    "used": "different pieces used",
    "usable": "  of those that are no bytes",
    "byte_pieces": "byte pieces",
    "byte_share": "  their share",
    "unknown_characters": "characters not known",
}


def check(
    *,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILES")] = None,
    corpus: CorpusOptions,
    model: Annotated[str | None, MODEL] = None,
    tokenizer: Path | None = None,
    ratio: float = 3.0,
    scores: Path | None = None,
    out: Path | None = None,
    format: report.Format = "text",
) -> None:
    """Count and measure a corpus; find what is empty, repeated, shared between splits or badly encoded.

    Exit code 0 with whatever warnings, 1 when there are errors: what would stop a training.
    A file that is not here is looked for in REGARD_DATA.

    Args:
        files: Tables of tab-separated columns, or TMX: train, valid, test.
        model: Report on this model's vocabulary as well.
        tokenizer: Report on this sentencepiece model, for both sides.
        ratio: Pairs whose lengths are so many times out of proportion are outliers.
        scores: Learn the word links of all pairs, about a minute for 100,000, and write here by pair its file, line and
            score: how well its words translate each other in other pairs. A score below 0.12 is a warning.
        out: Histograms of the lengths (.png, .svg, .pdf).
        format: For people, or JSON.

    Examples:
        regard data check train.tsv valid.tsv test.tsv
        regard data check train.tsv test.tsv --source-column 1 --target-column 0 --out lengths.png
        regard data check --source train.es --target train.en --model es-en
        regard data check train.tsv --scores scores.tsv
        regard data check --source train.es --target train.en --source test.es --target test.en --format json
    """
    splits = corpus.corpora(files)
    if not 1 < ratio <= 1000:
        raise ConfigurationError(f"--ratio {ratio:g}: use a number above 1, at most 1000")
    if out is not None:
        check_picture(out)
    if scores is not None:
        check_writable(scores)

    from regard.translation.text.checking.corpus import check as check_corpus

    corpus_report = check_corpus(splits, tokenizers=_tokenizers(model, tokenizer), ratio=ratio)
    if scores is not None:
        _score(splits, corpus_report, scores)
    if out is not None:
        _draw(corpus_report, out)
    if format == "json":
        print(report.as_json(corpus_report.as_object()))
    else:
        report.say(_text(corpus_report))
        if out is not None:
            report.say(f"\nwrote {out}")
    if corpus_report.findings.of("error"):
        raise typer.Exit(1)


def _score(splits: list[Corpus], corpus_report: Report, path: Path) -> None:
    """Write the scores of all pairs that have both sides, and add findings for low ones."""
    from regard import files
    from regard.translation.linking.learning import all_rounds, learn
    from regard.translation.linking.support import DOUBTFUL, support
    from regard.translation.linking.words import words_of

    if corpus_report.findings.of("error"):
        report.note(f"{path}: not written: mend the errors first")
        return
    places, pairs = [], []
    for corpus in splits:
        for number, row in enumerate(corpus.rows(), start=1):
            words = words_of(row[0]), words_of(row[1])
            if all(words):
                places.append((str(corpus.paths[0]), number))
                pairs.append(words)
    with report.counted("rounds", all_rounds(len(pairs))) as show:
        numbers = support(pairs, learn(pairs, progress=show)[0])
    low: dict[str, list[int]] = {}
    for (name, line), number in zip(places, numbers, strict=True):
        if number < DOUBTFUL:
            low.setdefault(name, []).append(line)
    for name, lines in low.items():
        problem = f"hardly a translation, by its word links (score below {DOUBTFUL})"
        corpus_report.findings.add_lines(problem, name, lines)
    rows = zip(places, numbers, strict=True)
    text = "".join(f"{name}\t{line}\t{number:.3f}\n" for (name, line), number in rows)
    files.write(path, text.encode())
    report.note(f"wrote {path}")


def _tokenizers(model: str | None, path: Path | None) -> tuple[Tokenizer, Tokenizer] | None:
    from regard.translation.text.tokenizer import Tokenizer

    if model is not None and path is not None:
        raise ConfigurationError("--model and --tokenizer: give one of them")
    if path is not None:
        return (Tokenizer.open(path),) * 2
    if model is None:
        return None
    from regard.translation.opening import find
    from regard.translation.runs import Run

    tokenizers = Run.open(find(model)).tokenizers()
    return tokenizers.source, tokenizers.target


def _text(corpus_report: Report) -> str:
    folder, short = _shortened(corpus_report)
    object_ = corpus_report.as_object()
    rows = [[folder, "lines", "pairs", "empty side", "repeated", "out of proportion"]]
    lengths = [["lengths", "", "", *_LENGTHS]]
    unread = [split.name for split in corpus_report.splits if split.unread]
    for split in object_["splits"]:
        if split["name"] in unread:
            continue
        numbers = split["lines"], split["pairs"], split["empty"]
        rows.append([short(split["name"]), *numbers, split["repeated"]["pairs"], split["outliers"]])
        for side, by_unit in split["lengths"].items():
            for unit, lengths_of_unit in by_unit.items():
                lengths.append(
                    [short(split["name"]), side, unit, *map(lengths_of_unit.get, _LENGTHS)]
                )
    blocks = [report.table(rows), report.table(lengths)] if len(rows) > 1 else []
    overlaps = [
        overlap
        for overlap in corpus_report.overlaps
        if not {overlap.earlier, overlap.later} & set(unread)
    ]
    if overlaps:
        rows = [["lines of a split that are in an earlier one", *_KINDS]]
        for overlap in overlaps:
            counts = [f"{overlap.exact[kind]:,} ({overlap.folded[kind]:,})" for kind in _KINDS]
            rows.append([short(f"{overlap.later} in {overlap.earlier}"), *counts])
        blocks.append(report.table(rows) + "\n(in brackets: but for case and punctuation)")
    if corpus_report.vocabularies and len(unread) < len(corpus_report.splits):
        blocks.append(_vocabulary(object_["vocabulary"]))
    problems = [*corpus_report.findings.of("error"), *corpus_report.findings.of("warning")]
    blocks.append("\n".join(map(short, problems)) or "nothing to object to")
    return "\n\n".join(blocks)


def _shortened(corpus_report: Report) -> tuple[str, Callable[[object], str]]:
    """The folder that all names of files begin with, and a function that leaves it out of a text."""
    files = sorted({name for split in corpus_report.splits for name in split.files}, reverse=True)
    names = re.compile("|".join(map(re.escape, files)))
    folder = ""
    # Some names may begin at the root and others here: those have no folder in common.
    if len(files) > 1 and len({os.path.isabs(name) for name in files}) == 1:
        common = os.path.commonpath([os.path.dirname(name) for name in files]).rstrip("/")
        folder = common and f"{common}/"
    return folder, lambda text: names.sub(lambda name: name[0].removeprefix(folder), str(text))


def _vocabulary(sides: dict[str, dict[str, Any]]) -> str:
    rows = [["vocabulary", *sides]]
    for name, title in _VOCABULARY.items():
        shape = {"pieces_per_word": ".3f", "byte_share": ".4%"}.get(name, ",")
        rows.append([title, *(f"{counts[name]:{shape}}" for counts in sides.values())])
    lines = [report.table(rows)]
    for side, counts in sides.items():
        named = [f"{m['character']} {m['code']} {m['count']}" for m in counts["most_unknown"]]
        lines += [f"not known, {side}: {', '.join(named)}"] if named else []
    return "\n".join(lines)


def _draw(corpus_report: Report, out: Path) -> None:
    from regard.viewing.charts import histograms

    unit = "pieces" if corpus_report.vocabularies else "words"
    _, short = _shortened(corpus_report)
    splits = [(short(split.name), getattr(split, unit)) for split in corpus_report.splits]
    drawing.save(histograms(splits, unit=unit), out)
