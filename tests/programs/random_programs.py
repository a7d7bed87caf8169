"""Random programs: columns on columns, some of which no Transformer of ours can compute."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from regard.programs import (
    Column,
    Program,
    Selector,
    aggregate,
    elementwise,
    everywhere,
    indices,
    numerical,
    select,
    tokens,
    where,
    width,
)

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def random_program(seed: int) -> tuple[Program, int]:
    """A program and the length to compile it for."""
    draw = random.Random(seed)
    alphabet = "abcd"[: draw.randint(1, 4)]
    columns: list[Column] = [tokens, indices]
    for _ in range(draw.randint(1, 6)):
        columns.append(_column(draw, columns))
    program = Program(f"random-{seed}", columns[-1], tuple(alphabet), causal=draw.random() < 0.3)
    return program, draw.randint(1, 8)


def random_input(draw: random.Random, program: Program, length: int) -> str:
    """Some tokens of the program's alphabet, at most so many."""
    return "".join(draw.choices(program.alphabet, k=draw.randint(0, length)))


def _column(draw: random.Random, columns: list[Column]) -> Column:
    column, two = (_recent(draw, columns) for _ in range(2))
    kinds: list[Callable[[], Column]] = [
        lambda: width(_selector(draw, columns)),
        lambda: width(_selector(draw, columns)),
        lambda: (
            aggregate(
                _selector(draw, columns),
                column,
                draw.choice([None, 0, "a"]),
                last=draw.random() < 0.5,
            )
            if not column.numerical
            else aggregate(_selector(draw, columns), column, draw.choice([None, 1, Fraction(1, 2)]))
        ),
        lambda: elementwise(_table(draw), column, two),
        lambda: elementwise(_table(draw), column),
        lambda: where(column == two, column, draw.randint(0, 2)),
        lambda: column + draw.choice([1, 2, Fraction(1, 3), two]),
        lambda: column - two,
        lambda: column * draw.choice([2, -1, two]),
        lambda: column < draw.choice([1, 2, two]),
        lambda: numerical(column == draw.choice(["a", "b", 0, 1, two])),
        lambda: numerical(column),
    ]
    return draw.choice(kinds)()


def _recent(draw: random.Random, columns: list[Column]) -> Column:
    """One of the columns, the last ones more often."""
    return draw.choice([*columns, *columns[-2:] * 2])


def _selector(draw: random.Random, columns: list[Column]) -> Selector:
    keys, queries = (_recent(draw, columns) for _ in range(2))
    selector = draw.choice(
        [
            lambda: select(keys, queries, draw.choice(("==", "!="))),
            lambda: select(keys, keys, draw.choice(COMPARISONS)),
            lambda: select(indices, indices, draw.choice(COMPARISONS)),
            lambda: select(keys, draw.choice(["a", 0, 1, True]), draw.choice(("==", "!="))),
            lambda: select(keys, queries, _table(draw, 2)),
            lambda: everywhere,
        ]
    )()
    if draw.random() < 0.15:
        selector = ~selector
    if draw.random() < 0.3:
        selector = selector & _selector(draw, columns)
    elif draw.random() < 0.1:
        selector = selector | _selector(draw, columns)
    return selector


def _table(draw: random.Random, maximum: int = 4) -> Callable[..., int]:
    """A function of any values, each with an answer of its own, the same in every process."""
    seed, answers = draw.getrandbits(32), draw.randint(1, maximum)

    def table(*values: object) -> int:
        return random.Random(f"{seed} {values}").randrange(answers)

    return table
