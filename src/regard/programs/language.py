"""The language: columns of values, selectors, and the three ways to make a column from others.

After RASP (Weiss, Goldberg and Yahav 2021, Thinking Like Transformers, arXiv 2106.06981). Two things are our own. A
selector that finds several keys gives the value of the first of them, or of the last, as hard attention with ties
broken by position does (Yang, Chiang and Angluin 2024, arXiv 2310.13897); so every program has an answer for every
input. And numbers are exact fractions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from regard.errors import ConfigurationError

Value: TypeAlias = Any  # a letter, a number, True, None, a tuple of them: anything hashable
Number: TypeAlias = int | Fraction
Predicate: TypeAlias = Callable[[Any, Any], bool]

COMPARISONS: dict[str, Predicate] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ProgramError(ConfigurationError):
    """A program, or an input of one, that cannot be used."""


def _operator(symbol: str, operate: Callable[[Any, Any], Any]) -> Callable[[Column, Any], Column]:
    """The method of a column for an operator."""
    return lambda column, operand: column._operated(symbol, operate, operand)


class Column:
    """A value at each position of the input.

    Operators make new columns, position by position: ``+ - * // %``, comparisons with ``== != < <= > >=``, and
    ``& | ~`` for true and false.

    Example:
        >>> from regard.programs import indices, run, tokens
        >>> run((tokens == "a") & (indices > 0), "aba")
        [False, False, True]
    """

    name: str
    numerical: bool = False

    def named(self, name: str) -> Column:
        """The same column under a name, which messages and pictures show."""
        return replace(self, name=name)  # type: ignore[type-var]

    def __str__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        raise ProgramError(
            f"{self.name!r} is a column, neither true nor false: use & | ~, not and, or, not"
        )

    def __iter__(self) -> Any:
        raise ProgramError(f"{self.name!r} is a column: run(column, tokens) gives its values")

    __hash__ = object.__hash__

    def _operated(self, symbol: str, operate: Callable[[Any, Any], Any], operand: Any) -> Column:
        name = f"({self} {symbol} {operand if isinstance(operand, Column) else repr(operand)})"
        if isinstance(operand, Column):
            return Elementwise(name, operate, (self, operand))
        return Elementwise(name, lambda value: operate(value, operand), (self,))

    def _combined(self, symbol: str, sign: int, operand: Any) -> Column:
        """A sum or difference; of numbers to average it is linear, which costs no layer."""
        operate = operator.add if sign > 0 else operator.sub
        is_numerical = isinstance(operand, Column) and operand.numerical
        if not self.numerical or not (is_numerical or isinstance(operand, Number)):
            return self._operated(symbol, operate, operand)
        name = f"({self} {symbol} {operand})"
        if isinstance(operand, Column):
            return Linear(name, ((self, Fraction(1)), (operand, Fraction(sign))))
        return Linear(name, ((self, Fraction(1)),), Fraction(sign * operand))

    def __add__(self, operand: Any) -> Column:
        return self._combined("+", 1, operand)

    def __sub__(self, operand: Any) -> Column:
        return self._combined("-", -1, operand)

    def __mul__(self, operand: Any) -> Column:
        if self.numerical and isinstance(operand, Number):
            return Linear(f"({self} * {operand})", ((self, Fraction(operand)),))
        return self._operated("*", operator.mul, operand)

    def _on_the_right(
        self, symbol: str, operate: Callable[[Any, Any], Any], operand: Any
    ) -> Column:
        name = f"({operand!r} {symbol} {self})"
        return Elementwise(name, lambda value: operate(operand, value), (self,))

    def __radd__(self, operand: Any) -> Column:
        return self + operand if self.numerical else self._on_the_right("+", operator.add, operand)

    def __rsub__(self, operand: Any) -> Column:
        return (
            self * -1 + operand
            if self.numerical
            else self._on_the_right("-", operator.sub, operand)
        )

    def __rmul__(self, operand: Any) -> Column:
        return self * operand if self.numerical else self._on_the_right("*", operator.mul, operand)

    def __rfloordiv__(self, operand: Any) -> Column:
        return self._on_the_right("//", operator.floordiv, operand)

    def __rmod__(self, operand: Any) -> Column:
        return self._on_the_right("%", operator.mod, operand)

    __floordiv__ = _operator("//", operator.floordiv)
    __mod__ = _operator("%", operator.mod)
    __eq__ = _operator("==", operator.eq)  # type: ignore[assignment]
    __ne__ = _operator("!=", operator.ne)  # type: ignore[assignment]
    __lt__ = _operator("<", operator.lt)
    __le__ = _operator("<=", operator.le)
    __gt__ = _operator(">", operator.gt)
    __ge__ = _operator(">=", operator.ge)
    __and__ = __rand__ = _operator("and", lambda x, y: bool(x) and bool(y))
    __or__ = __ror__ = _operator("or", lambda x, y: bool(x) or bool(y))

    def __invert__(self) -> Column:
        return Elementwise(f"(not {self})", operator.not_, (self,))


@dataclass(frozen=True, eq=False)
class Input(Column):
    """The tokens, or their positions from 0."""

    name: str

    def named(self, name: str) -> Column:
        return Elementwise(name, lambda value: value, (self,))


@dataclass(frozen=True, eq=False)
class Elementwise(Column):
    """function(values of the inputs) at each position."""

    name: str
    function: Callable[..., Value]
    inputs: tuple[Column, ...]


@dataclass(frozen=True, eq=False)
class Linear(Column):
    """Numbers to average: the constant plus the sum of factor times column."""

    name: str
    terms: tuple[tuple[Column, Fraction], ...]
    constant: Fraction = Fraction(0)
    numerical = True


@dataclass(frozen=True, eq=False)
class Aggregate(Column):
    """The mean of the selected keys' values if these are numerical, else the value of the first or the last key."""

    name: str
    selector: Selector
    values: Column
    default: Value
    last: bool

    @property
    def numerical(self) -> bool:  # type: ignore[override]
        return self.values.numerical


@dataclass(frozen=True, eq=False)
class Width(Column):
    """How many keys are selected."""

    name: str
    selector: Selector


@dataclass(frozen=True)
class Selector:
    """Which keys each query selects: those for which every term (keys, queries, predicate) is true.

    ``&`` costs nothing. ``|``, and ``~`` of several terms, first pair the columns, which takes a layer.
    """

    terms: tuple[tuple[Column, Column, Predicate], ...]
    name: str

    def __str__(self) -> str:
        return self.name

    def __and__(self, selector: Selector) -> Selector:
        return Selector(self.terms + _selector(selector).terms, f"{self} and {selector}")

    def __or__(self, selector: Selector) -> Selector:
        return replace(~(~self & ~_selector(selector)), name=f"({self} or {selector})")

    def __invert__(self) -> Selector:
        keys, queries, holds = self._single_term()
        return Selector(
            ((keys, queries, lambda key, query: not holds(key, query)),), f"not ({self})"
        )

    def _single_term(self) -> tuple[Column, Column, Predicate]:
        """One term for all of them, over tuples of their values."""
        if len(self.terms) == 1:
            return self.terms[0]
        keys, queries, predicates = zip(*self.terms, strict=True) if self.terms else ((), (), ())

        def holds(key: Any, query: Any) -> bool:
            return all(map(lambda test, k, q: test(k, q), predicates, key, query))

        return together(*keys), together(*queries), holds


tokens = Input("tokens")
indices = Input("indices")


def elementwise(function: Callable[..., Value], *columns: Any) -> Column:
    """A function of the values of some columns, position by position.

    Args:
        function: takes a value of each column; must give the same answer each time.
        columns: the columns; a value stands for a column of it.

    Raises:
        ProgramError: there is no column.

    Example:
        >>> from regard.programs import run
        >>> run(elementwise(str.upper, tokens), "abc")
        ['A', 'B', 'C']
    """
    if not columns:
        raise ProgramError("elementwise has no column: pass those whose values the function takes")
    columns = tuple(map(_column, columns))
    called = getattr(function, "__name__", "function").strip("<>")
    return Elementwise(f"{called}({', '.join(map(str, columns))})", function, columns)


def together(*columns: Column) -> Column:
    """Tuples of the values of some columns."""
    names = ", ".join(map(str, columns))
    return Elementwise(f"({names})", lambda *values: values, columns or (tokens,))


def where(condition: Column, then: Any, otherwise: Any) -> Column:
    """``then`` where the condition is true, ``otherwise`` where it is not; each a column or a value."""

    def pick(truth: Any, x: Any, y: Any) -> Any:
        return x if truth else y

    return elementwise(pick, condition, then, otherwise).named(
        f"where({condition}, {then}, {otherwise})"
    )


def numerical(column: Column) -> Column:
    """The numbers of a column as numbers to average, which aggregate takes the mean of.

    Example:
        >>> from regard.programs import run
        >>> run(aggregate(everywhere, numerical(tokens == "a")), "abaa")[0]
        Fraction(3, 4)
    """
    return Linear(f"numerical({column})", ((_column(column), Fraction(1)),))


def select(keys: Column, queries: Any = True, predicate: str | Predicate = "==") -> Selector:
    """The selector of the keys for which predicate(key, query) is true.

    Args:
        keys: a column, read at the keys.
        queries: a column, read at the query, or one value for all queries.
        predicate: a comparison such as ``"<"``, which stands for key < query, or a function (key, query) -> bool.

    Raises:
        ProgramError: the predicate is neither.

    Example:
        >>> from regard.programs import run
        >>> run(width(select(tokens, tokens)), "hello")
        [1, 1, 2, 2, 1]
    """
    if not isinstance(predicate, str):
        if not callable(predicate):
            raise ProgramError(f"predicate is {predicate!r}: pass a function (key, query) -> bool")
        called = getattr(predicate, "__name__", "predicate").strip("<>")
        return Selector(
            ((_column(keys), _column(queries), predicate),), f"{called}({keys}, {queries})"
        )
    if predicate not in COMPARISONS:
        raise ProgramError(
            f"predicate is {predicate!r}: pass a function or one of {', '.join(COMPARISONS)}"
        )
    name = f"{keys} {predicate} {queries if isinstance(queries, Column) else repr(queries)}"
    return Selector(((_column(keys), _column(queries), COMPARISONS[predicate]),), name)


everywhere = Selector((), "everywhere")


def aggregate(
    selector: Selector, values: Column, default: Any = None, *, last: bool = False
) -> Column:
    """A column made of the values of the selected keys.

    Args:
        selector: which keys each query selects.
        values: a column. Of a numerical one the answer is the mean; of any other the value at the first selected key.
        default: the answer where no key is selected; 0 for a mean unless told.
        last: the value at the last selected key instead of the first.

    Raises:
        ProgramError: the default of a mean is no number.

    Example:
        >>> from regard.programs import run
        >>> run(aggregate(select(indices, indices - 1), tokens, "_"), "abc")
        ['_', 'a', 'b']
    """
    values, selector = _column(values), _selector(selector)
    reading = "mean" if values.numerical else "last" if last else "first"
    if values.numerical:
        if not isinstance(default, Number | None):
            raise ProgramError(f"default is {default!r}: pass a whole number or a fraction")
        default = Fraction(default or 0)
    return Aggregate(f"{reading}({selector}, {values})", selector, values, default, last)


def width(selector: Selector) -> Column:
    """How many keys each query selects.

    Example:
        >>> from regard.programs import run
        >>> run(width(select(indices, indices, "<=")), "abc")
        [1, 2, 3]
    """
    return Width(f"width({selector})", _selector(selector))


def _column(value: Any) -> Column:
    """The column itself, or one that holds a value everywhere."""
    if isinstance(value, Column):
        return value
    return Elementwise(repr(value), lambda token: value, (tokens,))


def _selector(value: Any) -> Selector:
    """Raise `ProgramError` for anything but a selector."""
    if not isinstance(value, Selector):
        problem = f"'{value}' is a column" if isinstance(value, Column) else f"{value!r} is none"
        raise ProgramError(f"{problem}: pass a selector, as select(keys, queries) makes one")
    return value
