"""Programs, and what every column holds for one input, in plain Python. It is the meaning of the language."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

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


def run(column: Column, tokens: Sequence[Value], *, causal: bool = False) -> list[Any]:
    """The values of a column for some tokens, in plain Python.

    Raises:
        ProgramError: a function of the program fails, or a number is expected and something else found.

    Example:
        >>> run(indices * 2, "abc")
        [0, 2, 4]
    """
    return Running(tokens, causal).values(column)


class Running:
    """The values of columns for one input, each computed once."""

    def __init__(self, input_tokens: Sequence[Value], causal: bool) -> None:
        self.places = range(len(input_tokens))
        self.causal = causal
        self._known: dict[Column, list[Any]] = {
            tokens: list(input_tokens),
            indices: list(self.places),
        }

    def values(self, column: Column) -> list[Any]:
        """The value at each position."""
        if column not in self._known:
            self._known[column] = self._computed(column)
        return self._known[column]

    def _computed(self, column: Column) -> list[Any]:
        match column:
            case Elementwise(_, function, inputs):
                arguments = zip(*map(self.values, inputs), strict=True)
                return [called(column, function, *each) for each in arguments]
            case Linear(_, terms, constant):
                rows = [[factor * number(column, v) for v in self.values(c)] for c, factor in terms]
                return [sum(each, constant) for each in zip(*rows, strict=True)]
            case Width(_, selector):
                return [len(keys) for keys in self.selected(selector)]
            case Aggregate(_, selector, of, default, last):
                values = self.values(of)
                selected = [[values[key] for key in keys] for keys in self.selected(selector)]
                if column.numerical:
                    return [
                        Fraction(sum(some), len(some)) if some else default for some in selected
                    ]
                return [some[-1 if last else 0] if some else default for some in selected]
        raise ProgramError(
            f"a {type(column).__name__} is no column: pass one; call a program with its tokens instead"
        )

    def selected(self, selector: Selector) -> list[list[int]]:
        """The selected keys of each query, in order."""
        keys = [self.values(keys) for keys, _, _ in selector.terms]
        queries = [self.values(queries) for _, queries, _ in selector.terms]
        tests = [predicate for _, _, predicate in selector.terms]
        return [
            [
                key
                for key in (self.places[: query + 1] if self.causal else self.places)
                if all(
                    called(selector, test, k[key], q[query])
                    for test, k, q in zip(tests, keys, queries, strict=True)
                )
            ]
            for query in self.places
        ]


def called(source: Column | Selector, function: Callable[..., Any], *values: Any) -> Any:
    """function(*values), whose failure is one of the program."""
    try:
        return function(*values)
    except Exception as fault:  # the function is the user's
        arguments = ", ".join(map(repr, values))
        reason = f"{type(fault).__name__}: {fault}"
        hint = ": give a default to the aggregate that finds no key" * (None in values)
        raise ProgramError(
            f"'{source}' fails for the values {arguments} ({reason}){hint}"
        ) from fault


def number(source: Column, value: Any) -> Fraction:
    """A value that must be a number."""
    if not isinstance(value, int | Fraction):
        raise ProgramError(
            f"'{source}' must be numbers, whole or fractions: a value of it is {value!r}"
        )
    return Fraction(value)


@dataclass(frozen=True, eq=False)
class Program:
    """A column to compute, and the inputs that it is for.

    Attributes:
        name: its name.
        output: the column.
        alphabet: the tokens that its inputs are made of.
        causal: whether a query may read only keys at its own position and before.
        any_tokens: whether it works with any other alphabet as well.
        about: one line on what it computes.
        example: an input that shows it.
    """

    name: str
    output: Column
    alphabet: Sequence[Value]
    causal: bool = False
    any_tokens: bool = False
    about: str = ""
    example: Sequence[Value] = ()

    def __call__(self, tokens: Sequence[Value]) -> list[Any]:
        """The answers, one a position, as plain Python computes them."""
        self.check(tokens)
        return run(self.output, tokens, causal=self.causal)

    def check(self, tokens: Sequence[Value]) -> None:
        """Raise `ProgramError` for a token that is not in the alphabet."""
        if not self.any_tokens:
            check_tokens(self.name, self.alphabet, tokens)

    def over(self, tokens: Sequence[Value]) -> "Program":
        """The program over the alphabet of an input, where it works with any."""
        self.check(tokens)
        if not self.any_tokens or not tokens:
            return self
        return replace(self, alphabet=tuple(sorted(set(tokens), key=_order)))


def _order(token: Value) -> Any:
    return (str(type(token)), token)


def program(
    alphabet: Sequence[Value],
    *,
    causal: bool = False,
    any_tokens: bool = False,
    name: str = "",
    about: str = "",
    example: Sequence[Value] = (),
) -> Callable[[Callable[[], Column]], Program]:
    """Make a `Program`, with these attributes, of a function that returns a column.

    By default the name is that of the function, `about` is the first line of its docstring, and the alphabet is the
    example.

    Example:
        >>> from regard.programs import tokens, where
        >>> @program("ab")
        ... def swap():
        ...     "The other letter."
        ...     return where(tokens == "a", "b", "a")
        >>> swap("aab")
        ['b', 'b', 'a']
    """

    if callable(alphabet):
        raise ProgramError('@program has no alphabet: write it as @program("abc")')

    def program_of(function: Callable[[], Column]) -> Program:
        summary = about or (function.__doc__ or "").strip().partition("\n")[0]
        column = function()
        if not isinstance(column, Column):
            raise ProgramError(
                f"{function.__name__} returned {type(column).__name__}: return a column"
            )
        label = name or function.__name__.replace("_", "-")
        letters = tuple(dict.fromkeys(alphabet))
        return Program(label, column, letters, causal, any_tokens, summary, example or letters)

    return program_of


def check_tokens(
    name: str, alphabet: Sequence[Value], tokens: Sequence[Value], remedy: str = ""
) -> None:
    """Raise `ProgramError` for the first token that is not in an alphabet. Its message ends with the remedy."""
    for place, token in enumerate(tokens):
        if token not in alphabet:
            letters = " ".join(map(str, alphabet))
            raise ProgramError(
                f"token {place} is {token!r}: the alphabet of {name} is {letters}{remedy}"
            )
