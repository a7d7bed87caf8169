"""A cost for people: a table of its parts, its sums, and the measurements beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from regard.cli.output import report

if TYPE_CHECKING:
    from regard.costs.measuring import Measured
    from regard.costs.papers import Model
    from regard.costs.parts import Cost


def show(cost: Cost, model: Model | None, measured: Measured | None) -> None:
    """Print a cost on standard output."""
    report.say(_title(cost, model))
    report.say(_table(cost))
    for line in _sums(cost, model):
        report.say(line)
    for missing in cost.uncounted:
        report.say(f"not counted: {missing}")
    if measured is not None:
        report.say(_compared(cost, measured))


def _title(cost: Cost, model: Model | None) -> str:
    if model is None:
        return f"{cost.model}, one call"
    lengths = f"{cost.queries:,} queries, {cost.keys:,} keys"
    batch = f"{cost.batch:,} sequences of " if cost.batch > 1 else ""
    return f"{cost.model}: {model.source}\n{batch}{lengths}, {cost.number_bytes} bytes a number"


def _table(cost: Cost) -> str:
    from regard.costs.parts import FIELDS, Part, short

    def row(entry: Part) -> list[str | float]:
        sizes = [cost.number_bytes * n for n in (entry.activations, entry.scores, entry.cache)]
        in_bytes = [short(size, "B") if size else "" for size in sizes]
        return [entry.name, entry.parameters, short(entry.multiply_adds), *in_bytes]

    head = ["part", *(name.replace("_", "-") for name in FIELDS)]
    total = row(cost.total)
    total[0] = "all that is counted" if cost.uncounted else "all"
    return report.table([head, *map(row, cost.parts), total])


def _sums(cost: Cost, model: Model | None) -> Iterator[str]:
    from regard.costs.parts import short

    weights, activations, scores, cache = (short(size, "B") for size in cost.memory)
    if attention := cost.attention_weights():
        formula, total = attention
        yield f"attention weights: {formula} = {total:,}; without the 4 it is {total // 4:,}"
    if model is not None and model.published:
        yield f"parameters: {cost.parameters:,} counted, {model.published:,} published"
    if model is not None and model.remark:
        yield model.remark
    matrix = f"; {scores} of scores with the matrix, none without it; cache {cache}"
    yield f"memory: weights {weights}, activations {activations}{matrix if model else ''}"


def _compared(cost: Cost, measured: Measured) -> str:
    """The counts on paper beside those of the pass that ran here."""
    weights, activations, scores, _ = cost.memory
    without = weights + activations

    def megabytes(name: str, *sizes: int) -> list[str | float]:
        return [name, *(f"{size / 1e6:,.1f}" for size in sizes)]

    speed = measured.multiply_adds / measured.seconds / 1e9
    rows: list[list[str | float]] = [
        ["", "on paper", "measured here"],
        ["parameters", cost.parameters, measured.parameters],
        ["multiply-adds", cost.multiply_adds, measured.multiply_adds],
        megabytes("MB with the scores", without + scores, measured.matrix_bytes),
        megabytes("MB without them", without, measured.peak_bytes),
        ["seconds", "", f"{measured.seconds:.4f}"],
        ["G multiply-adds a second", "", f"{speed:,.1f}"],
    ]
    return f"\n{report.table(rows)}"
