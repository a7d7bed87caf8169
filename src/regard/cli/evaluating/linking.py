"""`regard evaluate --alignments`: the errors of word links."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from regard.cli.aligning import aligned
from regard.cli.options import corpora
from regard.cli.options.model import ModelOptions
from regard.cli.output import report
from regard.errors import ConfigurationError, DataError


def evaluate(
    path: Path,
    model: ModelOptions,
    hypotheses: Path | None,
    lines: tuple[Path | None, Path | None],
    flip: bool,
    format: report.Format,
) -> None:
    """Score a file of links, or those that a model makes of the gold's sentences."""
    from regard.translation.evaluation.alignment import diagonal_links, measure_alignment
    from regard.translation.evaluation.gold import read_links

    source, target = lines
    if (source is None) != (target is None):
        raise ConfigurationError("--source and --target belong together: give both")
    both = (
        None if source is None or target is None else (corpora.found(source), corpora.found(target))
    )
    gold = aligned.read_gold(path, flip=flip, limit=None, lines=both)
    if hypotheses is not None:
        found = read_links(hypotheses)
        if len(found) != len(gold):
            raise DataError(f"{hypotheses} has {len(found)} lines, {path} {len(gold)}")
    else:
        words = aligned.gold_words(gold, path)
        found = [one.links for one in aligned.open_aligner(model).align(words)]
    scores = measure_alignment(found, gold.sure, gold.possible)
    diagonal = None
    if gold.words is not None:
        plain = [diagonal_links(len(ours), len(theirs)) for ours, theirs in gold.words]
        diagonal = measure_alignment(plain, gold.sure, gold.possible)
    if format == report.Format.json:
        made = {"sentences": len(gold), **asdict(scores)}
        if diagonal is not None:
            made["diagonal"] = asdict(diagonal)
        print(report.as_json(made))
        return
    sure = sum(map(len, gold.sure))
    possible = sum(len(p | s) for p, s in zip(gold.possible, gold.sure, strict=True))
    report.say(
        f"{len(gold)} sentences, {sure} sure links, {possible} sure or possible; {scores.links} found"
    )
    report.say(
        f"AER {scores.aer:.2f}  precision {scores.precision:.2f}  recall {scores.recall:.2f}  "
        f"F1 {scores.f1:.2f}"
    )
    if diagonal is not None:
        report.say(f"the diagonal: AER {diagonal.aer:.2f}")
