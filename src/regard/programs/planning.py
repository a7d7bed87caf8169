"""From a program to the parts of a Transformer: heads, hidden units, columns; or the reason why there is none.

The compiler is after tracr (Lindner et al. 2023, arXiv 2301.05062). Every column has a bound on its error in float32,
which follows from the bounds of the columns that it is made of. A decision, such as whether a key is selected, needs a
margin above the bound. A program or a length that leaves no margin is refused.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from regard.programs.attending import Term, count, mean, picked
from regard.programs.feed_forward import elementwise
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
from regard.programs.running import Program, number
from regard.programs.sizes import Sizes
from regard.programs.stream import (
    ALWAYS,
    READING,
    Categories,
    Coded,
    Head,
    Numbers,
    Row,
    Stream,
    Unit,
    add,
    largest,
    limited,
)


@dataclass(frozen=True)
class Plan:
    """All weights of a compiled program, as rows.

    Attributes:
        heads: of each block.
        units: the hidden units of each block's feed-forward layer.
        tokens: for the beginning and each token, the columns of its embedding that are not 0.
        places: the same for each position.
        outputs: a row for each answer; a single one that reads the number if the answer is numerical.
        answers: the values that the program can answer.
        numerical: whether the answer is.
        error: a bound on the error of a number, or on the sum of the errors of the outputs.
    """

    program: Program
    sizes: Sizes
    heads: list[list[Head]]
    units: list[list[Unit]]
    tokens: list[Row]
    places: list[Row]
    outputs: list[Row]
    answers: tuple[Any, ...]
    numerical: bool
    error: float


def plan(program: Program, length: int) -> Plan:
    """The parts of the Transformer that computes a program, for inputs of at most `length` tokens.

    Raises:
        ProgramError: it cannot be compiled; says why.

    Example:
        >>> from regard.programs import PROGRAMS
        >>> sizes = plan(PROGRAMS["histogram"], 8).sizes
        >>> sizes.layers, sizes.heads
        (1, 1)
    """
    if not isinstance(program, Program):
        raise ProgramError(f"{program} is no program: put @program(alphabet) above its function")
    if length < 1:
        raise ProgramError(f"length is {length}: pass the most tokens of an input, at least 1")
    if not program.alphabet:
        raise ProgramError(f"the alphabet of {program.name} is empty: give it a token")
    planner = Planner(program, length)
    output = planner.code(program.output)
    stream = planner.stream
    if isinstance(output, Numbers):
        outputs, error = [output.row], output.error + READING * output.largest
        for low, high in pairwise(output.values):
            if not error < float(high - low) / 2:
                raise stream.beyond(program.output, f"{low} and {high}")
    else:
        outputs, error = [output.row([value]) for value in output.values], output.error
    layers = range(1 + max([0, *stream.heads, *stream.units]))
    heads = [stream.heads.get(layer, []) for layer in layers]
    units = [stream.units.get(layer, []) for layer in layers]
    sizes = Sizes(
        layers=len(layers),
        heads=max([1, *map(len, heads)]),
        head_width=max([1, *(max(len(h.dims), len(h.reads)) for own in heads for h in own)]),
        width=stream.width,
        feed_forward=max([1, *map(len, units)]),
        tokens=1 + len(program.alphabet),
        places=1 + length,
        answers=len(outputs),
    )
    words, places = planner.embeddings()
    numerical = isinstance(output, Numbers)
    return Plan(
        program, sizes, heads, units, words, places, outputs, output.values, numerical, error
    )


class Planner:
    """Codes the columns of one program, each once."""

    def __init__(self, program: Program, length: int) -> None:
        self.program = program
        self.stream = Stream(length)
        self._coded: dict[Column, Coded] = {}

    def code(self, column: Column) -> Coded:
        """How the stream holds a column; its parts are added when it is new."""
        if column not in self._coded:
            self._coded[column] = self._new(column)
        return self._coded[column]

    def _new(self, column: Column) -> Coded:
        stream = self.stream
        match column:
            case Elementwise():
                return elementwise(stream, column, [self.code(each) for each in column.inputs])
            case Linear():
                return self._linear(column)
            case Width():
                return count(stream, column, self._terms(column.selector))
            case Aggregate():
                terms, values = self._terms(column.selector), self.code(column.values)
                if isinstance(values, Numbers):
                    return mean(stream, column, terms, values)
                if not isinstance(column.default, Hashable):
                    raise ProgramError(
                        f"the default of '{column}' is {column.default!r}: pass a value that can be hashed"
                    )
                return picked(stream, column, terms, values)
        return stream.one_hot(
            column, self.program.alphabet if column is tokens else range(stream.length), 0
        )

    def _terms(self, selector: Selector) -> list[Term]:
        def categories(column: Column, role: str) -> Categories:
            coded = self.code(column)
            if isinstance(coded, Numbers):
                raise ProgramError(f"select {role} must be categorical: '{column}' is numerical")
            return coded

        return [
            (categories(keys, "keys"), categories(queries, "queries"), test)
            for keys, queries, test in selector.terms
        ]

    def _linear(self, column: Linear) -> Numbers:
        """A row of rows: it costs nothing."""
        rows: list[tuple[float, Row]] = [(float(column.constant), ALWAYS)]
        values, error, time = {column.constant}, 0.0, 0
        for term, factor in column.terms:
            coded = self.code(term)
            of_term = [number(column, value) for value in coded.values]
            row = coded.row if isinstance(coded, Numbers) else coded.number_row()
            bound = coded.error if isinstance(coded, Numbers) else coded.error * largest(of_term)
            rows.append((float(factor), row))
            values = limited(column, {one + factor * two for one in values for two in of_term})
            error += abs(float(factor)) * bound + READING * largest(values)
            time = max(time, coded.time)
        return Numbers(add(*rows), tuple(sorted(values)), time, error)

    def embeddings(self) -> tuple[list[Row], list[Row]]:
        """The rows of the embeddings of tokens and of positions; those of the beginning come first and are empty."""

        def ones(column: Column, value: Value) -> Row:
            coded = self._coded.get(column)
            return coded.base.placed(value) if isinstance(coded, Categories) else {}

        words: list[Row] = [{}, *(ALWAYS | ones(tokens, t) for t in self.program.alphabet)]
        places: list[Row] = [{}, *(ones(indices, index) for index in range(self.stream.length))]
        if self.stream.place is not None:
            for index, row in enumerate(places[1:]):
                row[self.stream.place] = float(index)
        return words, places
