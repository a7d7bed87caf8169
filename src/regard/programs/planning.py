"""From a program to the parts of a Transformer: heads, hidden units, columns; or the reason why there is none.

The compiler is after tracr (Lindner et al. 2023, arXiv 2301.05062). Every column has a bound on its error in float32,
which follows from the bounds of the columns that it is made of. A decision, such as whether a key is selected, needs a
margin above the bound. A program or a length that leaves no margin is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import exp, prod
from typing import Any

from regard.programs.coding import (
    BEGINNING,
    READING,
    ROUNDING,
    TOKEN,
    Categories,
    Coded,
    Head,
    Numbers,
    OneHot,
    Row,
    Unit,
    add,
    factored,
)
from regard.programs.defining import Program
from regard.programs.language import (
    Aggregate,
    Column,
    Elementwise,
    Linear,
    ProgramError,
    Selector,
    Value,
    Width,
    indices,
    tokens,
)
from regard.programs.running import called, number
from regard.programs.sizes import Sizes

# Most values of a column, combinations of values of several columns, and numbers of a numerical column.
MOST_VALUES, MOST_COMBINATIONS, MOST_NUMBERS = 512, 4096, 4096
MOST_ERROR = 1 / 16  # of a categorical column

# Differences of scores, in nats. exp(-16) is 1e-7: what is not selected weighs less than an average needs. Keys at
# neighbouring positions are twice as far apart, because their scores are the larger ones.
SHARP, APART = 16.0, 32.0


@dataclass(frozen=True)
class Plan:
    """All weights of a compiled program, as rows.

    Attributes:
        program: the program.
        sizes: of the Transformer.
        heads: of each block.
        units: the hidden units of each block's feed-forward layer.
        embeddings: for the beginning and each token, then for each place, the columns that are not 0.
        outputs: a row for each answer; a single one that reads the number if the answer is numerical.
        answers: the values that the program can answer.
        error: a bound on the error of an output.
    """

    program: Program
    sizes: Sizes
    heads: list[list[Head]]
    units: list[list[Unit]]
    embeddings: tuple[list[Row], list[Row]]
    outputs: list[Row]
    answers: tuple[Any, ...]
    numerical: bool
    error: float


def plan(program: Program, length: int) -> Plan:
    """The parts of the Transformer that computes a program.

    Args:
        program: the program.
        length: the most tokens of an input.

    Raises:
        ProgramError: it cannot be compiled; says why.

    Example:
        >>> from regard.programs import PROGRAMS
        >>> sizes = plan(PROGRAMS["histogram"], 8).sizes
        >>> sizes.layers, sizes.heads
        (1, 1)
    """
    if length < 1:
        raise ProgramError(f"length is {length}: pass the most tokens of an input, at least 1")
    if not program.alphabet:
        raise ProgramError(f"the alphabet of {program.name} is empty: give it a token")
    return Planner(program, length).plan()


class Planner:
    """Gives the columns of one program their places, one after the other."""

    def __init__(self, program: Program, length: int) -> None:
        self.program = program
        self.length = length
        self.width = 2  # ONE and TOKEN
        self.heads: dict[int, list[Head]] = {}
        self.units: dict[int, list[Unit]] = {}
        self.place: int | None = None
        self._coded: dict[Column, Coded] = {}

    def plan(self) -> Plan:
        output = self.code(self.program.output)
        if isinstance(output, Numbers):
            outputs, error = [output.row], output.error + READING * output.largest
            for one, two in pairwise(output.values):
                if not error < float(two - one) / 2:
                    raise self.beyond(self.program.output, f"its values {one} and {two}")
        else:
            outputs, error = [output.row([value]) for value in output.values], output.error
        layers = range(1 + max([0, *self.heads, *self.units]))
        heads = [self.heads.get(layer, []) for layer in layers]
        units = [self.units.get(layer, []) for layer in layers]
        every = [head for own in heads for head in own]
        sizes = Sizes(
            layers=len(layers),
            heads=max([1, *map(len, heads)]),
            head_width=max([1, *(max(len(head.dims), len(head.reads)) for head in every)]),
            width=self.width,
            feed_forward=max([1, *map(len, units)]),
            tokens=1 + len(self.program.alphabet),
            places=1 + self.length,
            answers=len(outputs),
        )
        numerical = isinstance(output, Numbers)
        embeddings = self._embeddings()
        return Plan(
            self.program, sizes, heads, units, embeddings, outputs, output.values, numerical, error
        )

    def _embeddings(self) -> tuple[list[Row], list[Row]]:
        def ones(column: Column, value: Value) -> Row:
            coded = self._coded.get(column)
            row = coded.base.row(value) if isinstance(coded, Categories) else {}
            return {at: weight for at, weight in row.items() if weight > 0 and at != TOKEN}

        words = [{}, *({TOKEN: 1.0} | ones(tokens, token) for token in self.program.alphabet)]
        places: list[Row] = [{}, *(ones(indices, index) for index in range(self.length))]
        if self.place is not None:
            for index, row in enumerate(places):
                row[self.place] = max(index - 1.0, 0.0)
        return words, places

    def code(self, column: Column) -> Coded:
        """How the stream holds a column; parts are added where it is new."""
        if column not in self._coded:
            self._coded[column] = self._new(column)
        return self._coded[column]

    def _new(self, column: Column) -> Coded:
        match column:
            case Elementwise():
                return self._elementwise(column)
            case Linear():
                return self._linear(column)
            case Width():
                return self._count(column)
            case Aggregate() if column.numerical:
                return self._mean(column)
            case Aggregate():
                return self._picked(column)
        values = self.program.alphabet if column is tokens else range(self.length)
        return self._one_hot(column, values, 0, READING)

    def categories(self, column: Column, what: str) -> Categories:
        """The code of a column that must be categorical."""
        coded = self.code(column)
        if isinstance(coded, Numbers):
            raise ProgramError(f"{what} must be categorical: '{column}' is numerical")
        return coded

    def _one_hot(
        self, column: Column, values: Sequence[Value], time: int, error: float
    ) -> Categories:
        """New columns for values, of which the first needs none."""
        if len(values) > MOST_VALUES:
            raise ProgramError(
                f"'{column}' has {len(values)} values, more than {MOST_VALUES}: compile for a shorter length"
            )
        if not error <= MOST_ERROR:
            raise self.beyond(column, "its values")
        base = OneHot(tuple(values), self.width, time, error)
        self.width += len(values) - 1
        return Categories(base, {value: value for value in base.values})

    def beyond(self, column: Column, what: str) -> ProgramError:
        """The error for a decision that float32 does not bear."""
        return ProgramError(
            f"'{column}' cannot tell {what} apart in float32 at length {self.length}: compile for a shorter length"
        )

    # Elementwise functions.

    def _elementwise(self, column: Elementwise) -> Coded:
        inputs = [self.code(each) for each in column.inputs]
        given = [each for each in inputs if isinstance(each, Categories)]
        if len(given) < len(inputs):
            if len(inputs) > 1:
                raise ProgramError(
                    f"'{column}' takes categorical columns or one numerical one: "
                    + " and ".join(
                        f"'{c}' is {_kind(x)}" for c, x in zip(column.inputs, inputs, strict=True)
                    )
                )
            (numbers,) = (each for each in inputs if isinstance(each, Numbers))
            outs = [_value(column, value) for value in numbers.values]
            return self._steps(column, numbers, outs, [numbers.error] * len(outs))
        bases = list(dict.fromkeys(each.base for each in given))
        count = prod(len(base.values) for base in bases)
        if count > MOST_COMBINATIONS:
            raise ProgramError(
                f"'{column}' has {count} combinations of values, more than {MOST_COMBINATIONS}: "
                "give its columns fewer values, or compile for a shorter length"
            )
        places = [bases.index(each.base) for each in given]
        table = {
            values: _value(column, *(x.of[values[at]] for x, at in zip(given, places, strict=True)))
            for values in product(*(base.values for base in bases))
        }
        if len(bases) == 1:
            return Categories(bases[0], {value: table[value,] for value in bases[0].values})
        return self._joined(column, given, bases, table)

    def _joined(
        self,
        column: Column,
        given: list[Categories],
        bases: list[OneHot],
        table: dict[tuple[Value, ...], Value],
    ) -> Categories:
        """A function of several one-hots: steps of a sum, where that decides it, or a unit for each combination."""
        classes = [_alike(base, place, table) for place, base in enumerate(bases)]
        outs = {some: table[tuple(own[0] for own in some)] for some in product(*classes)}
        ((rest, often),) = Counter(outs.values()).most_common(1)
        if sums := _deciding_sum(given, bases, table):
            row, by_sum = sums
            known = tuple(sorted(by_sum))
            changes = sum(by_sum[one] != by_sum[two] for one, two in pairwise(known))
            if 2 * changes < len(outs) - often:
                error = sum(x.error * _largest(x.values) for x in given)
                numbers = Numbers(row, known, max(base.time for base in bases), error)
                return self._steps(
                    column, numbers, [by_sum[v] for v in known], [error] * len(known)
                )
        values = (rest, *dict.fromkeys(out for out in outs.values() if out != rest))
        block = max(base.time for base in bases) // 2
        terms = len(bases)
        # relu(2 (sum of the indicators) - 2 terms + 1): of 1 for its combination, of -1 or less for others.
        error = 4 * (sum(base.error for base in bases) + 2 * terms * READING)
        made = self._one_hot(column, values, 2 * block + 2, error)
        for some, out in outs.items():
            if out != rest:
                ones = [
                    Categories(b, {v: v for v in b.values}).row(own)
                    for b, own in zip(bases, some, strict=True)
                ]
                inner = add(*((2.0, row) for row in ones), (1.0 - 2 * terms, {TOKEN: 1.0}))
                self._unit(block, inner, made.base.row(out))
        return made

    def _steps(
        self, column: Column, x: Numbers, outs: Sequence[Value], errors: Sequence[float]
    ) -> Categories:
        """A function of a number: a step up, relu(u) - relu(u - 1), between values whose answers differ.

        u rises from 0 to 1 in the middle half of the gap, so an error of a quarter of it does no harm. Both units of a
        step have weights that differ by exactly 1, so their difference is 1 up to the rounding of numbers as large
        as the weight at TOKEN: 4 of them, and each step moves two indicators.
        """
        values = tuple(dict.fromkeys(outs))
        steps = [at for at in range(1, len(outs)) if outs[at] != outs[at - 1]]
        block, error, made = x.time // 2, READING, []
        for at in steps:
            low, high = float(x.values[at - 1]), float(x.values[at])
            gap = high - low
            blur = max(errors[at - 1], errors[at]) + READING * (abs(low) + abs(high))
            if not blur < gap / 4:
                raise self.beyond(column, f"{x.values[at - 1]} and {x.values[at]}")
            slope = 2 / gap
            start = round(slope * (low + gap / 4) * 2**12) / 2**12
            largest = max(abs(start), slope * abs(x.values[-1]) if high > 0 else 0.0)
            error += 8 * ROUNDING * largest
            made.append((outs[at - 1], outs[at], slope, start))
        coded = self._one_hot(column, values, 2 * block + 2 if steps else 0, error)
        for before, after, slope, start in made:
            moved = _difference(coded.base, after, before)
            for offset, sign in ((start, 1.0), (start + 1, -1.0)):
                inner = add((slope, x.row), (-offset, {TOKEN: 1.0}))
                self._unit(block, inner, add((sign, moved)))
        return coded

    def _unit(self, block: int, inner: Row, outer: Row) -> None:
        self.units.setdefault(block, []).append(Unit(inner, outer))

    def _linear(self, column: Linear) -> Numbers:
        parts: list[tuple[float, Row]] = [(float(column.constant), {TOKEN: 1.0})]
        values, error, time = {column.constant}, 0.0, 0
        for each, factor in column.terms:
            coded = self.code(each)
            if isinstance(coded, Categories):
                own = [number(column, value) for value in coded.values]
                rows = [(float(number(column, v)), coded.row([v])) for v in coded.values]
                row, bound = add(*rows), coded.error * _largest(own)
            else:
                own, row, bound = list(coded.values), coded.row, coded.error
            parts.append((float(factor), row))
            values = _limited(column, {one + factor * two for one in values for two in own})
            error += abs(float(factor)) * bound + READING * _largest(values)
            time = max(time, coded.time)
        return Numbers(add(*parts), tuple(sorted(values)), time, error)

    # Attention.

    def _head(
        self, column: Column, selector: Selector, level: float, sharp: float
    ) -> tuple[int, Head, float]:
        """A head that scores selected keys sharp * terms, others sharp less, and the beginning sharp * level.

        The beginning itself reads only the beginning. Returns the time of what it needs, the head, and a bound
        on the errors of scores.
        """
        dims: list[tuple[Row, Row]] = []
        time, error = 0, 0.0
        for keys, queries, predicate in selector.terms:
            key = self.categories(keys, "select keys")
            query = self.categories(queries, "select queries")
            true = {
                (q, k)
                for q in query.values
                for k in key.values
                if called(selector, predicate, k, q)
            }
            dims += [(add((sharp, q)), k) for q, k in factored(query, key, true)]
            error += key.error + query.error + key.error * query.error
            time = max(time, key.time, query.time)
        terms = len(selector.terms)
        dims.append((add((sharp * level, {TOKEN: 1.0}), (sharp, BEGINNING)), BEGINNING))
        error = sharp * (error + READING * (terms + 2) * (terms + 1))
        return time, Head(str(column), dims, []), error

    def _attend(self, head: Head, *times: int) -> int:
        """Put a head into the first block that has what it reads, and return the time of its reading."""
        block = (max(times) + 1) // 2
        self.heads.setdefault(block, []).append(head)
        return 2 * block + 1

    def _count(self, column: Width) -> Categories:
        """With k selected keys the beginning, which scores as they do, has weight 1 / (k + 1).

        The scores of the k keys are off by `error` at most, and the others together weigh `leak` of one of them.
        """
        terms = len(column.selector.terms)
        time, head, error = self._head(column, column.selector, float(terms), SHARP)
        weight = self.width
        self.width += 1
        head.reads.append((BEGINNING, weight))
        leak = self.length * exp(error - SHARP)
        relative = exp(error) - 1 + leak + (self.length + 32) * ROUNDING
        counts = range(self.length + 1)
        values = tuple(Fraction(-1, count + 1) for count in counts)
        numbers = Numbers({weight: -1.0}, values, self._attend(head, time), 1.0)
        return self._steps(column, numbers, counts, [-float(value) * relative for value in values])

    def _mean(self, column: Aggregate) -> Numbers:
        """Selected keys have equal weights, up to exp(2 error); the beginning scores half a step below them."""
        values = self.code(column.values)
        assert isinstance(values, Numbers)
        assert isinstance(column.default, Fraction)
        level = len(column.selector.terms) - 0.5
        time, head, error = self._head(column, column.selector, level, 2 * SHARP)
        mean = self.width
        self.width += 1
        default = float(column.default)
        head.reads.append((add((1.0, values.row), (-default, {TOKEN: 1.0})), mean))
        time = self._attend(head, time, values.time)
        sums, means = {Fraction(0)}, {column.default}
        for count in range(1, self.length + 1):
            sums = _limited(column, {one + two for one in sums for two in values.values})
            means = _limited(column, means | {each / count for each in sums})
        unequal = exp(2 * error) - 1 + self.length * exp(2 * error - SHARP)
        unequal += (self.length + 32) * ROUNDING
        spread = float(max(means) - min(means))
        bound = spread * unequal + values.error + READING * (values.largest + abs(default))
        row = add((1.0, {mean: 1.0}), (default, {TOKEN: 1.0}))
        return Numbers(row, tuple(sorted(means)), time, bound)

    def _picked(self, column: Aggregate) -> Categories:
        """Among selected keys each position scores APART less than the one before it, or after it.

        A term outweighs all positions, so selected keys score more than the beginning, and that more than others.
        """
        values = self.categories(column.values, "values")
        if not isinstance(column.default, Hashable):
            raise ProgramError(
                f"the default of '{column}' is {column.default!r}: pass a value that can be hashed"
            )
        sharp = 2 * APART * self.length
        level = len(column.selector.terms) - 0.5
        time, head, error = self._head(column, column.selector, level, sharp)
        if self.place is None:
            self.place = self.width
            self.width += 1
        head.dims.append(({TOKEN: APART if column.last else -APART}, {self.place: 1.0}))
        time = self._attend(head, time, values.time)
        kept = [value for value in values.values if value != column.default]
        leak = self.length * exp(min(2 * error - APART, 0.0))
        coded = self._one_hot(
            column, [column.default, *kept], time, values.error + 2 * leak + 2 * READING
        )
        for value in kept:
            (target,) = coded.base.row(value)
            head.reads.append((values.row([value]), target))
        return coded


def _kind(coded: Coded) -> str:
    return "numerical" if isinstance(coded, Numbers) else "categorical"


def _value(column: Elementwise, *given: Any) -> Value:
    """The function's answer, which must be a value that can be counted among others."""
    out = called(column, column.function, *given)
    if isinstance(out, Column) or not isinstance(out, Hashable):
        raise ProgramError(
            f"'{column}' gives a {type(out).__name__}: give a value that can be hashed"
        )
    return out


def _largest(values: Any) -> float:
    return float(max(map(abs, values)))


def _limited(column: Column, values: set[Fraction]) -> set[Fraction]:
    if len(values) > MOST_NUMBERS:
        raise ProgramError(
            f"'{column}' can be more than {MOST_NUMBERS} different numbers: round it, or compile for a shorter length"
        )
    return values


def _difference(base: OneHot, after: Value, before: Value) -> Row:
    """What to add to the columns to change a value into another."""
    one = base.row(after) if after != base.values[0] else {}
    two = base.row(before) if before != base.values[0] else {}
    return add((1.0, one), (-1.0, two))


def _alike(
    base: OneHot, place: int, table: dict[tuple[Value, ...], Value]
) -> list[tuple[Value, ...]]:
    """The values of one of several columns, those together that the table does not distinguish."""
    rows: dict[Value, list[Value]] = {value: [] for value in base.values}
    for values, out in table.items():
        rows[values[place]].append(out)
    groups: dict[tuple[Value, ...], list[Value]] = {}
    for value, row in rows.items():
        groups.setdefault(tuple(row), []).append(value)
    return [tuple(own) for own in groups.values()]


def _deciding_sum(
    given: list[Categories], bases: list[OneHot], table: dict[tuple[Value, ...], Value]
) -> tuple[Row, dict[Fraction, Value]] | None:
    """A sum or difference of columns of numbers that decides the table: its row, and the answer for each value."""
    if not all(isinstance(value, int | Fraction) for each in given for value in each.values):
        return None
    best: tuple[Row, dict[Fraction, Value]] | None = None
    fewest = 0
    for signs in product((1,), *[(1, -1)] * (len(given) - 1)):
        found: dict[Fraction, Value] = {}
        for values, out in table.items():
            at = dict(zip(bases, values, strict=True))
            terms = zip(signs, given, strict=True)
            total = sum((sign * Fraction(x.of[at[x.base]]) for sign, x in terms), Fraction(0))
            if found.setdefault(total, out) != out:
                break
        else:
            ordered = [found[each] for each in sorted(found)]
            changes = sum(one != two for one, two in pairwise(ordered))
            if best is None or changes < fewest:
                rows = [
                    (sign * float(value), x.row([value]))
                    for sign, x in zip(signs, given, strict=True)
                    for value in x.values
                ]
                best, fewest = (add(*rows), found), changes
    return best
