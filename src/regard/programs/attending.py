"""Columns that attention computes: how many keys are selected, their mean, and the first or last of them.

The score of a key is `sharp` for each term that it fulfils. The beginning scores `sharp * level`; it is what a query
reads that selects nothing; the beginning itself reads only itself. Softmax makes of differences of scores ratios
of weights: exp(-16) is 1e-7, less than an average needs. Keys at neighbouring positions are twice as far apart,
because the scores that tell positions apart are the larger ones, with larger errors.
"""

from fractions import Fraction
from math import exp

from regard.programs.feed_forward import steps
from regard.programs.language import Aggregate, Column, Predicate, Selector, Width
from regard.programs.running import called
from regard.programs.stream import (
    ALWAYS,
    BEGINNING,
    READING,
    ROUNDING,
    Categories,
    Head,
    Numbers,
    Row,
    Stream,
    add,
    check_types,
    factored,
    limited,
)

SHARP, APART = 16.0, 32.0  # nats

Term = tuple[Categories, Categories, Predicate]


def _scored(
    column: Column, selector: Selector, terms: list[Term], level: float, sharp: float
) -> tuple[Head, int, float]:
    """A head that reads nothing yet, the time of what its scores need, and a bound on the errors of the scores.

    An indicator that is off by e moves a score by sharp * e, for keys and queries alike.
    """
    dims: list[tuple[Row, Row]] = []
    error = READING * (len(terms) + 2) * (len(terms) + 1)
    for keys, queries, predicate in terms:
        true = {
            (query, key)
            for query in queries.values
            for key in keys.values
            if called(selector, predicate, key, query)
        }
        dims += [(add((sharp, query)), key) for query, key in factored(queries, keys, true)]
        error += keys.error + queries.error + keys.error * queries.error
    dims.append((add((sharp * level, ALWAYS), (sharp, BEGINNING)), BEGINNING))
    time = max((x.time for keys, queries, _ in terms for x in (keys, queries)), default=0)
    return Head(str(column), dims, []), time, sharp * error


def count(stream: Stream, column: Width, terms: list[Term]) -> Categories:
    """With k selected keys the beginning, which scores as they do, has weight 1 / (k + 1).

    Relative to it, the k keys are off by exp(error) - 1, the others add `length` times exp(error - SHARP), and
    softmax rounds.
    """
    head, time, error = _scored(column, column.selector, terms, len(terms), SHARP)
    weight = stream.column()
    head.reads.append((BEGINNING, weight))
    time = stream.head(head, time)
    counts = range(stream.length + 1)
    values = tuple(Fraction(-1, number + 1) for number in counts)
    relative = exp(error) - 1 + stream.length * exp(error - SHARP) + _softmax(stream)
    numbers = Numbers({weight: -1.0}, values, time, relative)
    return steps(stream, column, numbers, counts, [-float(value) * relative for value in values])


def mean(stream: Stream, column: Aggregate, terms: list[Term], values: Numbers) -> Numbers:
    """The weights of selected keys differ by exp(2 error) at most; the beginning is SHARP below them."""
    head, time, error = _scored(column, column.selector, terms, len(terms) - 0.5, 2 * SHARP)
    read, default = stream.column(), Fraction(column.default)
    head.reads.append((add((1.0, values.row), (-float(default), ALWAYS)), read))
    time = stream.head(head, time, values.time)
    sums, means = {Fraction(0)}, {default}
    for number in range(1, stream.length + 1):
        sums = limited(column, {one + two for one in sums for two in values.values})
        means = limited(column, means | {each / number for each in sums})
    unequal = exp(2 * error) - 1 + stream.length * exp(2 * error - SHARP) + _softmax(stream)
    spread = float(max(means) - min(means))
    bound = spread * unequal + values.error + READING * (values.largest + abs(float(default)))
    row = add((1.0, {read: 1.0}), (float(default), ALWAYS))
    return Numbers(row, tuple(sorted(means)), time, bound)


def picked(stream: Stream, column: Aggregate, terms: list[Term], values: Categories) -> Categories:
    """Each position scores APART less than the one before it; for the last selected key, more.

    A term outweighs all positions: so selected keys score more than the beginning, and that more than the others.
    """
    sharp = 2 * APART * stream.length
    head, time, error = _scored(column, column.selector, terms, len(terms) - 0.5, sharp)
    if stream.place is None:
        stream.place = stream.column()
    toward = APART if column.last else -APART
    head.dims.append((add((toward, ALWAYS)), {stream.place: 1.0}))
    time = stream.head(head, time, values.time)
    leak = stream.length * exp(min(2 * error - APART, 0.0))
    check_types(column, [column.default, *values.values])
    coded_values = [value for value in values.values if value != column.default]
    error = values.error + 2 * leak + 2 * READING
    coded = stream.one_hot(column, [column.default, *coded_values], time, error)
    for value in coded_values:
        (place,) = coded.base.placed(value)
        head.reads.append((values.row([value]), place))
    return coded


def _softmax(stream: Stream) -> float:
    """A bound on the relative rounding of weights: exponentials, and a sum of length + 1 of them."""
    return (stream.length + 32) * ROUNDING
