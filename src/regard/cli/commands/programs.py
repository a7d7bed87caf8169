"""`regard programs`: programs that run as the weights of a Transformer."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli import computing, shipped
from regard.cli.group import add, group
from regard.cli.options.checks import check_parent, check_whole
from regard.cli.output import report, streams
from regard.errors import ConfigurationError, DataError

Name = Annotated[
    str, typer.Argument(metavar="NAME|MODULE:NAME", autocompletion=shipped.complete_program)
]


def list_(*, length: int = 8) -> None:
    """List the shipped programs with the sizes of the Transformers that they become.

    Args:
        length: The most tokens of an input.

    Examples:
        regard programs list
        regard programs list --length 16
    """
    check_whole("--length", length, 1, 512)
    from regard.programs import PROGRAMS, ProgramError, plan

    rows = [["", "alphabet", "layers", "heads", "width", "parameters"]]
    for name, program in PROGRAMS.items():
        letters = "".join(map(str, program.alphabet)) + "…" * program.any_tokens
        try:
            sizes = plan(program, length).sizes
        except ProgramError:
            cells = ["-"] * 4
        else:
            numbers = (sizes.layers, sizes.heads, sizes.width, sizes.parameters)
            cells = [f"{number:,}" for number in numbers]
        rows.append([name, letters, *cells])
    abouts = ["", *(program.about for program in PROGRAMS.values())]
    for line, about in zip(report.table(rows).splitlines(), abouts, strict=True):
        report.say(f"{line}  {about}".rstrip())


def run(
    *,
    name: Name,
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
    tokens = computing.tokens(streams.argument(text), program.alphabet)
    if not tokens:
        raise DataError("TEXT is empty: pass at least one token")
    from regard.programs import compile

    compiled = compile(program.over(tokens), len(tokens))
    computing.answer(compiled, tokens)
    report.say(f"\n{compiled.model.sizes}\n")
    computing.draw(compiled, tokens, layer, head, theme)


def compile_(
    *,
    name: Name,
    out: Annotated[Path, typer.Option(metavar="DIR")],
    length: int = 8,
    alphabet: str | None = None,
) -> None:
    """Compile a program and write its Transformer to a folder, which `regard look` and `regard explore` open.

    Args:
        name: A shipped program, or your own: NAME is a program in MODULE, which is imported.
        out: A new folder.
        length: The most tokens of an input.
        alphabet: Its tokens, one character each, for a program that works with any. [default: the program's own]

    Examples:
        regard programs compile reverse --out reverse
        regard look --model reverse "abc"
        regard programs compile sort --alphabet abcdefghij --length 12 --out sort
    """
    check_whole("--length", length, 1, 512)
    check_parent(out)
    program = computing.program(name)
    if alphabet is not None:
        if not program.any_tokens:
            raise ConfigurationError(f"--alphabet {alphabet}: {name} has an alphabet of its own")
        if not alphabet:
            raise ConfigurationError("--alphabet is empty: pass at least one character")
        program = replace(program, alphabet=sorted(set(alphabet)))
    from regard.programs import compile, save

    compiled = compile(program, length)
    save(compiled, out)
    report.say(f"{compiled.model.sizes}\nwrote {out}")


app = group(
    "Think like a Transformer: programs that become the weights of one.",
    epilog="""\b
Examples:
  regard programs list
  regard programs run histogram "hello"
  regard programs compile reverse --out reverse""",
)
add(app, list_, run, compile_)
