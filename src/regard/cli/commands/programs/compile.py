"""`regard programs compile`: the Transformer of a program, as a folder."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import computing
from regard.cli.options.checks import check_parent, check_whole
from regard.cli.output import report
from regard.errors import ConfigurationError


def compile_(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME|MODULE:NAME")],
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
