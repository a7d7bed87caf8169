"""A program: a column to compute, the alphabet of its inputs, and whether it is causal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.programs.language import Column, ProgramError, Value
from regard.programs.running import run


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
        called = name or function.__name__.replace("_", "-")
        letters = tuple(dict.fromkeys(alphabet))
        return Program(called, column, letters, causal, any_tokens, summary, example or letters)

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
