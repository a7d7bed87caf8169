"""The residual stream: how it holds a column, and what a program has placed in it while it is planned.

Categories are one-hot, numbers are one number; both have a bound on their error.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any, TypeAlias

from regard.programs.language import Column, ProgramError, Value

# A linear function of the residual stream: the factor of each of its columns.
Row: TypeAlias = dict[int, float]

# Two columns that every stream has. ONE is 2**30 everywhere: beside its square, 2**60, the squares of all other columns
# are lost in float32, so that the norms of the blocks divide every position by exactly the same number, and weights of
# the norms undo it. TOKEN is 1 at tokens and 0 at the beginning-of-sequence place, which all unused attention goes to.
ONE, TOKEN, HUGE = 0, 1, 2.0**30
ALWAYS: Row = {TOKEN: 1.0}  # 1 at tokens
BEGINNING: Row = {ONE: 1 / HUGE, TOKEN: -1.0}  # 1 at the beginning, exactly 0 at tokens

ROUNDING = 2.0**-24  # of float32
READING = 8 * ROUNDING  # relative error of a number that came through a norm and one product
# Most values of a column, combinations of values of several columns, and numbers of a numerical column.
MOST_VALUES, MOST_COMBINATIONS, MOST_NUMBERS = 512, 4096, 4096
LARGEST = 2**15  # of numbers, whose squares the norms must not see beside that of ONE
MOST_ERROR = 1 / 16  # of a categorical column


def add(*rows: tuple[float, Row]) -> Row:
    """The sum of factor times row."""
    total: Row = {}
    for factor, row in rows:
        for column, weight in row.items():
            total[column] = total.get(column, 0.0) + factor * weight
    return {column: weight for column, weight in total.items() if weight}


def largest(values: Collection[Any]) -> float:
    """The largest absolute value of some numbers."""
    return float(max(map(abs, values)))


@dataclass(frozen=True, eq=False)
class OneHot:
    """Columns of the stream that are 1 for one value each; the first value, which has none, is 1 minus the others.

    Attributes:
        values: the values.
        first_column: the column of the second value.
        time: 0 after the embeddings, 2l + 1 after the attention of block l, 2l + 2 after its feed-forward layer.
        error: a bound on the sum over values of |what a row reads - what it should|.
    """

    values: tuple[Value, ...]
    first_column: int
    time: int
    error: float

    def placed(self, value: Value) -> Row:
        """The numbers of the columns for a value; none for the first value."""
        place = self.values.index(value)
        return {self.first_column + place - 1: 1.0} if place else {}

    def row(self, value: Value) -> Row:
        """Reads 1 where this is the value, else 0; 0 at the beginning."""
        columns = range(self.first_column, self.first_column + len(self.values) - 1)
        return self.placed(value) or ALWAYS | dict.fromkeys(columns, -1.0)

    def rows(self, values: Collection[Value]) -> Row:
        """Reads 1 where this is one of the values."""
        return add(*((1.0, self.row(value)) for value in values))


@dataclass(frozen=True)
class Categories:
    """A categorical column: a function of a one-hot one. So a function of one column costs nothing."""

    base: OneHot
    of: dict[Value, Value]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(self.of.values()))

    def row(self, values: Collection[Value]) -> Row:
        """Reads 1 where the column has one of these values."""
        return self.base.rows([each for each, value in self.of.items() if value in values])

    def number_row(self) -> Row:
        """Reads the value, of a column of numbers."""
        return add(*((float(value), self.base.row(each)) for each, value in self.of.items()))

    @property
    def time(self) -> int:
        return self.base.time

    @property
    def error(self) -> float:
        return self.base.error


@dataclass(frozen=True)
class Numbers:
    """A numerical column: the row that reads it, and every number that it can be.

    Attributes:
        error: a bound on |what the row reads - the number|.
    """

    row: Row
    values: tuple[Fraction, ...]
    time: int
    error: float

    @property
    def largest(self) -> float:
        return largest(self.values)


Coded: TypeAlias = Categories | Numbers


@dataclass(frozen=True)
class Head:
    """An attention head: score = sum over dims of query row times key row; reads rows into columns."""

    about: str
    dims: list[tuple[Row, Row]]
    reads: list[tuple[Row, int]]


@dataclass(frozen=True)
class Unit:
    """A hidden unit of a feed-forward layer: relu(inner), times a factor into each column of outer."""

    inner: Row
    outer: Row


def factored(
    queries: Categories, keys: Categories, true: Collection[tuple[Value, Value]]
) -> list[tuple[Row, Row]]:
    """Dimensions of a head whose products sum to 1 for the (query, key) values in `true`, else to 0.

    There is one for each distinct set of keys that some query selects, or of queries that select some key, whichever
    are fewer: the nonnegative factors of a 0/1 matrix with equal rows, or columns, merged.
    """

    by_query = _grouped(queries.values, keys.values, set(true))
    by_key = _grouped(keys.values, queries.values, {(key, query) for query, key in true})
    if len(by_query) <= len(by_key):
        return [(queries.row(members), keys.row(partners)) for partners, members in by_query]
    return [(queries.row(partners), keys.row(members)) for partners, members in by_key]


def _grouped(
    values: Collection[Value], partners: Collection[Value], pairs: Collection[tuple[Value, Value]]
) -> list[tuple[frozenset[Value], list[Value]]]:
    """Values with the same partners, together and in their order; those without a partner are left out."""
    groups: dict[frozenset[Value], list[Value]] = {}
    for value in values:
        of_value = frozenset(partner for partner in partners if (value, partner) in pairs)
        groups.setdefault(of_value, []).append(value)
    return [(of_group, members) for of_group, members in groups.items() if of_group]


class Stream:
    """The columns that have been placed, for inputs of at most `length` tokens.

    Attributes:
        width: columns in use, first ONE and TOKEN.
        heads: of each block that has any.
        units: hidden units of each block that has any.
        place: the column that holds the position as a number, once it is needed.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.width = 2
        self.heads: dict[int, list[Head]] = {}
        self.units: dict[int, list[Unit]] = {}
        self.place: int | None = None

    def column(self) -> int:
        """A new column."""
        self.width += 1
        return self.width - 1

    def one_hot(
        self, column: Column, values: Sequence[Value], time: int, error: float = READING
    ) -> Categories:
        """New columns for the values of a column of the program, of which the first value needs none."""
        if len(values) > MOST_VALUES:
            raise ProgramError(
                f"'{column}' has {len(values)} values, more than {MOST_VALUES}: compile for a shorter length"
            )
        if not error <= MOST_ERROR:
            raise self.beyond(column, "its values")
        base = OneHot(tuple(values), self.width, time, error)
        self.width += len(values) - 1
        return Categories(base, {value: value for value in base.values})

    def head(self, head: Head, *times: int) -> int:
        """Put a head into the first block that finds what it reads. Returns the time of its reading."""
        block = (max(times) + 1) // 2
        self.heads.setdefault(block, []).append(head)
        return 2 * block + 1

    def unit(self, block: int, inner: Row, outer: Row) -> None:
        """Put a hidden unit into the feed-forward layer of a block."""
        self.units.setdefault(block, []).append(Unit(inner, outer))

    def check_combinations(self, column: Column, bases: Sequence[OneHot]) -> None:
        """Refuse a function of too many values at once."""
        count = prod(len(base.values) for base in bases)
        if count > MOST_COMBINATIONS:
            raise ProgramError(
                f"'{column}' has {count} combinations of values, more than {MOST_COMBINATIONS}: "
                "give its columns fewer values, or compile for a shorter length"
            )

    def beyond(self, column: Column, subject: str) -> ProgramError:
        """The error for a decision that needs more than float32."""
        return ProgramError(
            f"'{column}' cannot tell {subject} apart in float32 at length {self.length}: compile for a shorter length"
        )


def check_types(column: Column, values: Iterable[Value]) -> None:
    """Refuse equal values of several types, such as 1 and True: one code stands for both, but functions may not."""
    distinct: dict[Value, Value] = {}
    for value in values:
        equal = distinct.setdefault(value, value)
        if type(equal) is not type(value):
            raise ProgramError(
                f"'{column}' has both {equal!r} and {value!r}, which are equal: give one of them"
            )


def limited(column: Column, numbers: set[Fraction]) -> set[Fraction]:
    """The numbers that a column can be, or a refusal of too many."""
    if len(numbers) > MOST_NUMBERS:
        raise ProgramError(
            f"'{column}' can be more than {MOST_NUMBERS} different numbers: compile for a shorter length"
        )
    if max(map(abs, numbers)) > LARGEST:
        raise ProgramError(
            f"'{column}' can be {max(numbers, key=abs)}: keep numbers below {LARGEST}"
        )
    return numbers
