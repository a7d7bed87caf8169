"""Functions position by position, in feed-forward layers: one-hot columns in, one-hot columns out."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import frexp
from typing import Any, TypeAlias

from regard.programs.language import Column, Elementwise, ProgramError, Value
from regard.programs.running import called
from regard.programs.stream import (
    ALWAYS,
    LARGEST,
    READING,
    ROUNDING,
    Categories,
    Coded,
    Numbers,
    OneHot,
    Stream,
    add,
    check_types,
    largest,
)

Table: TypeAlias = dict[tuple[Value, ...], Value]


def elementwise(stream: Stream, column: Elementwise, inputs: Sequence[Coded]) -> Categories:
    """A function of one column of categories costs nothing, one of several or of numbers takes hidden units."""
    categories = [each for each in inputs if isinstance(each, Categories)]
    if len(categories) < len(inputs):
        return _of_numbers(stream, column, inputs)
    bases = list(dict.fromkeys(each.base for each in categories))
    stream.check_combinations(column, bases)
    places = [bases.index(each.base) for each in categories]
    table = {
        values: _value(
            column, *(x.of[values[at]] for x, at in zip(categories, places, strict=True))
        )
        for values in product(*(base.values for base in bases))
    }
    check_types(column, table.values())
    if len(bases) == 1:
        return Categories(bases[0], {value: table[value,] for value in bases[0].values})
    sums = _deciding_sum(categories, bases, table)
    classes = [_alike(base, place, table) for place, base in enumerate(bases)]
    outs = {some: table[tuple(own[0] for own in some)] for some in product(*classes)}
    ((usual, often),) = Counter(outs.values()).most_common(1)
    if sums and 2 * len(_changes(sums[1])) < len(outs) - often:
        return steps(stream, column, *sums)
    return _combinations(stream, column, bases, outs, usual)


def _of_numbers(stream: Stream, column: Elementwise, inputs: Sequence[Coded]) -> Categories:
    """A function of one numerical column."""
    (numbers, *more) = inputs
    if more or not isinstance(numbers, Numbers):
        kinds = (
            f"'{each}' is {'numerical' if isinstance(coded, Numbers) else 'categorical'}"
            for each, coded in zip(column.inputs, inputs, strict=True)
        )
        raise ProgramError(
            f"'{column}' takes categorical columns or one numerical one: {' and '.join(kinds)}"
        )
    outs = [_value(column, value) for value in numbers.values]
    check_types(column, outs)
    return steps(stream, column, numbers, outs)


def _combinations(
    stream: Stream,
    column: Column,
    bases: Sequence[OneHot],
    outs: dict[tuple[tuple[Value, ...], ...], Value],
    usual: Value,
) -> Categories:
    """A unit for each combination of classes of values, except those of the most frequent answer.

    It is relu(2 (sum of m indicators) - 2 m + 1): of 1 for its own combination, of at most -1, so 0, for others.
    The errors of the indicators are doubled; they move two indicators, that of the answer and that of the rest.
    """
    values = (usual, *dict.fromkeys(out for out in outs.values() if out != usual))
    block = max(base.time for base in bases) // 2
    error = 4 * sum(base.error + 2 * READING for base in bases)
    coded = stream.one_hot(column, values, 2 * block + 2, error)
    for classes, out in outs.items():
        if out != usual:
            rows = [base.rows(own) for base, own in zip(bases, classes, strict=True)]
            inner = add(*((2.0, row) for row in rows), (1.0 - 2 * len(rows), ALWAYS))
            stream.unit(block, inner, coded.base.placed(out))
    return coded


def steps(
    stream: Stream,
    column: Column,
    x: Numbers,
    outs: Sequence[Value],
    errors: Sequence[float] | None = None,
) -> Categories:
    """A function of a number, from its values in order and their answers: a step where the answer changes.

    A step is relu(u) - relu(u - 1), where u = slope x - start rises from 0 to 1 in the middle half of the gap between
    two values: errors up to a quarter of the gap do no harm. Below the step it is exactly 0. Above, it is 1 up to
    rounding: u and u - 1 share slope x, and start and start + 1 are exact in float32, so what remains is 4 roundings
    of numbers as large as start or slope x. Each step moves two indicators.

    Args:
        errors: bounds on the errors of x at each value, where they differ.
    """
    errors = errors or [x.error] * len(outs)
    block, error, jumps = x.time // 2, READING, []
    for at in _changes(outs):
        low, high = float(x.values[at - 1]), float(x.values[at])
        gap = high - low
        blur = max(errors[at - 1], errors[at]) + READING * (abs(low) + abs(high))
        if not blur < gap / 4:
            raise stream.beyond(column, f"{x.values[at - 1]} and {x.values[at]}")
        slope = 2 / gap
        start = slope * (low + gap / 4)
        unit = 2.0 ** (max(frexp(start)[1], 1) - 22)
        start = round(start / unit) * unit
        error += 8 * ROUNDING * max(abs(start), slope * largest([high, x.values[-1]]))
        jumps.append((outs[at - 1], outs[at], slope, start))
    values = tuple(dict.fromkeys(outs))
    coded = stream.one_hot(column, values, 2 * block + 2 if jumps else 0, error)
    for old, new, slope, start in jumps:
        moved = add((1.0, coded.base.placed(new)), (-1.0, coded.base.placed(old)))
        stream.unit(block, add((slope, x.row), (-start, ALWAYS)), moved)
        stream.unit(block, add((slope, x.row), (-start - 1, ALWAYS)), add((-1.0, moved)))
    return coded


def _changes(outs: Sequence[Value]) -> list[int]:
    return [at for at, (one, two) in enumerate(pairwise(outs), 1) if one != two]


def _value(column: Elementwise, *values: Any) -> Value:
    """The function's answer, which must be a value that can be counted among others."""
    out = called(column, column.function, *values)
    if isinstance(out, Column) or not isinstance(out, Hashable):
        raise ProgramError(
            f"'{column}' gives a {type(out).__name__}: give a value that can be hashed"
        )
    return out


def _alike(base: OneHot, place: int, table: Table) -> Iterable[tuple[Value, ...]]:
    """The values of one of several columns, those together that the table does not distinguish."""
    rows: dict[Value, list[Value]] = {value: [] for value in base.values}
    for values, out in table.items():
        rows[values[place]].append(out)
    groups: dict[tuple[Value, ...], list[Value]] = {}
    for value, row in rows.items():
        groups.setdefault(tuple(row), []).append(value)
    return map(tuple, groups.values())


def _is_small(value: Value) -> bool:
    return isinstance(value, int | Fraction) and -LARGEST <= value <= LARGEST


def _deciding_sum(
    categories: Sequence[Categories], bases: Sequence[OneHot], table: Table
) -> tuple[Numbers, list[Value]] | None:
    """A sum or difference of columns of numbers that decides the table with the fewest changes, if there is one.

    Returns its numbers, and the answer for each of them.
    """
    if not all(_is_small(value) for each in categories for value in each.values):
        return None
    deciding = []
    for signs in product((1,), *[(1, -1)] * (len(categories) - 1)):
        outs: dict[Fraction, Value] = {}
        for values, out in table.items():
            at = dict(zip(bases, values, strict=True))
            terms = (s * Fraction(x.of[at[x.base]]) for s, x in zip(signs, categories, strict=True))
            if outs.setdefault(sum(terms, Fraction(0)), out) != out:
                break
        else:
            row = add(*((float(s), x.number_row()) for s, x in zip(signs, categories, strict=True)))
            time = max(base.time for base in bases)
            error = sum(x.error * largest(x.values) for x in categories)
            totals = sorted(outs)
            numbers = Numbers(row, tuple(totals), time, error)
            deciding.append((numbers, [outs[each] for each in totals]))
    return min(deciding, key=lambda candidate: len(_changes(candidate[1])), default=None)
