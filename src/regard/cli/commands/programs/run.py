"""`regard programs run`: the answer of a program for one input, and the attention that gave it."""

from typing import Annotated, Literal

import typer

from regard.cli import computing
from regard.cli.output import report, streams
from regard.errors import DataError


def run(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME|MODULE:NAME")],
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    layer: int | None = None,
    head: int | None = None,
    theme: Literal["light", "dark"] | None = None,
) -> None:
    """Compile a program for an input, print the Transformer's answer, and draw the attention that it used.

    Queries are down, keys across. Attention that finds no key goes to "begin", the place before the first token.

    Args:
        name: A shipped program, or your own: NAME is a program in MODULE, which is imported.
        text: The tokens: its characters, or its words where a token of the program is longer.
        layer: One layer, from 0.
        head: One head, from 0.
        theme: Light or dark. [default: as the terminal says it is]

    Examples:
        regard programs run histogram "hello"
        regard programs run addition "127+35"
        regard programs run my_programs:parity "1011"
    """
    streams.output()
    program = computing.program(name)
    given = computing.tokens(streams.argument(text), program.alphabet)
    if not given:
        raise DataError("TEXT is empty: pass at least one token")
    from regard.programs import compile

    compiled = compile(program.over(given), len(given))
    computing.answer(compiled, given)
    report.say(f"\n{compiled.model.sizes}\n")
    computing.draw(compiled, given, layer, head, theme)
