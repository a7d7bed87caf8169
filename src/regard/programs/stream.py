"""The residual stream of one program while it is planned: its columns, heads and hidden units."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod

from regard.programs.coding import READING, Categories, Head, OneHot, Row, Unit
from regard.programs.language import Column, ProgramError, Value

# Most values of a column, combinations of values of several columns, and numbers of a numerical column.
MOST_VALUES, MOST_COMBINATIONS, MOST_NUMBERS = 512, 4096, 4096
LARGEST = 2**15  # of numbers, whose squares the norms must not see beside that of ONE
MOST_ERROR = 1 / 16  # of a categorical column


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
