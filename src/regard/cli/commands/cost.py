"""`regard cost`: the cost of a model, counted by part and measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import shipped, watching
from regard.cli.options.checks import (
    changed_options,
    check_picture,
    check_writable,
    exclude,
    option,
)
from regard.cli.output import drawing, report

if TYPE_CHECKING:
    from regard.costs.measuring import Measured
    from regard.costs.papers import Model
    from regard.costs.parts import Cost


def _show(cost: Cost, model: Model | None, measured: Measured | None) -> None:
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


LENGTHS = [2**power for power in range(6, 18)]  # of the texts in a picture


@dataclass(frozen=True)
class Sizes:
    """The sizes that are counted for.

    Attributes:
        queries: Tokens that read: of the target, or the new ones of a text. [default: as in the paper; 50 for a
            translator, 512 for one attention]
        keys: Tokens that are read: of the source, or of the text. [default: as many]
        batch: Sequences.
        half: Numbers of two bytes, not four.
        width: Width of the queries and keys of single-head, multi-head and summed-heads. [default: 512]
        heads: Heads of multi-head and summed-heads. [default: 8]
        value_width: Width of the values of single-head, multi-head and summed-heads. [default: the same]
        learned_keys: Learned keys of each head of single-head, multi-head and summed-heads, and as many learned
            values. [default: none]
        set: Change a key of a configuration.
    """

    queries: int | None = None
    keys: int | None = None
    batch: int = 1
    half: bool = False
    width: int | None = None
    heads: int | None = None
    value_width: int | None = None
    learned_keys: int | None = None
    set: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None


def cost(
    *,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|NAME|DIR|MODULE:CALL", autocompletion=shipped.complete_counted
        ),
    ],
    sizes: Sizes,
    measure: bool = False,
    out: Path | None = None,
    format: report.Format = "text",
) -> None:
    """Count the parameters, multiply-adds and memory of a model, by part.

    Products of matrices are counted. Softmax, norms, activation functions and sums are not; masks save nothing.

    Args:
        subject: A named model (bahdanau-2015, luong-2015, vaswani-base, vaswani-big, bert-base, gpt-2, gpt-2-xl,
            gpt-3); single-head, multi-head or summed-heads; a configuration; a bundled model or a run folder; or
            MODULE:CALL, as for `regard look --watch`.
        measure: Also run it here, and print the time and the memory of a forward pass.
        out: A picture (.png, .svg, .pdf), with the memory for texts of other lengths.
        format: For people, or JSON.

    Examples:
        regard cost gpt-3
        regard cost multi-head --width 512 --heads 8 --queries 1000
        regard cost multi-head --learned-keys 1024
        regard cost tatoeba-es-en --set model.width=512 --measure
        regard cost runs/mine --queries 30 --keys 40 --out cost.png
        regard cost my_model:example --format json
    """
    if out is not None:
        check_picture(out)
        check_writable(out)
    exclude("--measure", {"--half": measure and sizes.half}, "a pass is measured in float32")
    has_learned = measure and sizes.learned_keys is not None
    exclude("--measure", {"--learned-keys": has_learned}, "they are counted by formulas only")
    if watching.is_call(subject):
        excluded = {option(name): name != "half" for name in changed_options(sizes)} | {
            "--measure": measure
        }
        exclude(subject, excluded, "a module is counted as MODULE:CALL calls it")
        counted, model = _of_call(subject, sizes.half), None
    else:
        counted, model = _of_name(subject, sizes)
    measurement = None
    if measure and model is not None:
        from regard.costs.measuring import measured

        measurement = measured(counted, model)
    if out is not None:
        _draw(counted, model, out)
    if format == "json":
        measurements = {} if measurement is None else {"measured": measurement._asdict()}
        print(report.as_json({**counted.as_object(), **measurements}))
    else:
        _show(counted, model, measurement)
    if out is not None and format == "text":
        report.say(f"wrote {out}")


def _of_call(call: str, half: bool) -> Cost:
    from regard.costs.counting import of_module

    model, run, _ = watching.model_of(call, watching.called(call, call))
    with watching.running(call):
        return of_module(model, run, call, 2 if half else 4)


def _of_name(name: str, sizes: Sizes) -> tuple[Cost, Model]:
    from regard.costs.counting import find, of_model

    changes = tuple(sizes.set or ())
    named = {
        "width": sizes.width,
        "heads": sizes.heads,
        "value_width": sizes.value_width,
        "learned_keys": sizes.learned_keys,
    }
    model = find(name, **named, changes=changes)
    number_bytes = 2 if sizes.half else 4
    return of_model(model, name, sizes.queries, sizes.keys, sizes.batch, number_bytes), model


def _draw(cost: Cost, model: Model | None, out: Path) -> None:
    from regard.costs.counting import of_model
    from regard.viewing.costs import picture

    growth = []
    if model is not None:
        lengths = [n for n in LENGTHS if model.longest is None or n <= model.longest]
        arguments = (cost.batch, cost.number_bytes)
        growth = [of_model(model, cost.model, n, n, *arguments) for n in lengths]
    drawing.save(picture(cost, growth), out)
