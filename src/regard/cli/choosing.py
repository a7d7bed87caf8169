"""`regard align --choose`: every layer, head and method of a model against gold links."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import aligning
from regard.cli.aligning import AlignOptions
from regard.cli.options.checks import check_writable
from regard.cli.output import report
from regard.cli.writing import writing

if TYPE_CHECKING:
    from regard.translation.aligning.choice import Choice
    from regard.translation.aligning.selection import Chosen, Tried


def choose(path: Path, options: AlignOptions) -> None:
    """Try all, print the table, and keep the best in the model's folder."""
    from regard.translation.aligning import choice as choices
    from regard.translation.aligning.selection import choose as search
    from regard.translation.aligning.word_attention import word_attentions
    from regard.translation.opening import find
    from regard.translation.runs import Run
    from regard.translation.runs.layout import ALIGNMENT

    source, target = options.source, options.target
    lines = None if source is None else Path(source), None if target is None else Path(target)
    gold = aligning.read_gold(path, flip=options.flip, limit=options.limit, lines=lines)
    pairs = aligning.gold_words(gold, path)
    run = Run.open(find(options.model.model))
    place = run.folder / ALIGNMENT
    if options.store:
        check_writable(place)
    # Locked from before the model is read, so that the choice is that of the weights it names.
    with writing(run) if options.store else nullcontext(run) as run:
        translator = options.model.open()
        selection = search(word_attentions(translator.model, translator.tokenizers, pairs), gold)
        if options.format == "json":
            print(report.as_json(_as_object(selection, len(gold))))
        else:
            report.say(
                f"{len(gold)} sentences of {path.name}; alignment error rates in percent, the less the better\n\n"
                + _text(selection)
            )
        if options.store:
            best = selection.best
            choices.keep(
                run, choices.StoredChoice(best.choice, path.name, len(gold), best.scores.aer)
            )
            report.note(f"wrote {place}")


def _text(selection: Chosen) -> str:
    """A row for each matrix, the best of each method in it; the best of all, and of each half."""
    methods = ("argmax", "mutual", "threshold")
    by_row: dict[str, dict[tuple[bool, str], Tried]] = {}
    for trial in selection.tried:
        row = by_row.setdefault(_place(trial.choice), {})
        key = trial.choice.balanced, trial.choice.method
        if key not in row or trial.scores.aer < row[key].scores.aer:
            row[key] = trial
    rows = [["", *(f"{name:>9}" for name in methods * 2)]]
    for place, cells in by_row.items():
        rows.append([place, *(_cell(cells[b, name]) for b in (False, True) for name in methods)])
    table = report.table(rows)
    head = "weights as they are".ljust(30).rjust(table.index("   argmax") + 30) + "balanced"
    best, scores = selection.best, selection.best.scores
    first_half, second_half = selection.crossed
    return f"""{head}
{table}

diagonal {selection.diagonal.aer:.1f}
best     {scores.aer:.1f} (precision {scores.precision:.1f}, recall {scores.recall:.1f}): {best.choice}
chosen on one half, measured on the other:
  first on second {first_half.scores.aer:.1f}: {first_half.choice}
  second on first {second_half.scores.aer:.1f}: {second_half.choice}"""


def _place(choice: Choice) -> str:
    if choice.layer is None:
        return f"all layers     {choice.rows}"
    head = "mean  " if choice.head is None else f"head {choice.head}"
    return f"layer {choice.layer} {head} {choice.rows}"


def _cell(trial: Tried) -> str:
    share = f"@{trial.choice.threshold:.2f}" if trial.choice.method == "threshold" else ""
    return f"{trial.scores.aer:.1f}{share}"


def _as_object(selection: Chosen, sentences: int) -> dict[str, object]:
    def plain(trial: Tried) -> dict[str, object]:
        return {**asdict(trial.choice), **asdict(trial.scores)}

    return {
        "sentences": sentences,
        "diagonal": asdict(selection.diagonal),
        "best": plain(selection.best),
        "first_half_on_second": plain(selection.crossed[0]),
        "second_half_on_first": plain(selection.crossed[1]),
        "tried": [plain(trial) for trial in selection.tried],
    }
