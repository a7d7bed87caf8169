"""`regard config`: the shipped configurations, and every key that a configuration may have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import shipped
from regard.cli.group import group
from regard.cli.output import report
from regard.errors import ConfigurationError

EXAMPLES = """\b
Examples:
  regard config list
  regard config show tatoeba-es-en > my.toml
  regard config show my.toml --full
  regard config keys training"""

app = group("List and show configurations; explain their keys.", EXAMPLES)


class _Format(StrEnum):
    text = "text"
    markdown = "markdown"


@app.command("list")
def list_shipped() -> None:
    """List the shipped configurations."""
    width = max(map(len, shipped.configurations()), default=0)
    for name, path in shipped.configurations().items():
        report.say(f"{name:{width}}  {shipped.summary(path)}")


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A shipped configuration's name, a TOML file, or a run folder.",
            autocompletion=shipped.complete_configuration,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key; implies --full."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print every key, with the defaults filled in.")
    ] = False,
) -> None:
    """Print a configuration, checked, in TOML."""
    from regard.translation import settings

    own = Path(name) / "config.toml"
    path = own if own.is_file() else shipped.configuration(name)
    checked = settings.read(path, tuple(changes or ()))
    if full or changes:
        report.say(settings.dump(checked).rstrip("\n"))
    else:
        report.say(path.read_text(encoding="utf-8-sig").rstrip("\n"))


@app.command()
def keys(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only this table: data, model, training, ..."),
    ] = None,
    format: Annotated[
        _Format, typer.Option(help="Text, or the page of the documentation.")
    ] = _Format.text,
) -> None:
    """Explain every key: its values, its default and its meaning."""
    from regard.translation.settings import reference

    if format is _Format.markdown:
        if table is not None:
            raise ConfigurationError(f"--format markdown prints all tables: leave {table} out")
        report.say(reference.markdown().rstrip("\n"))
        return
    tables = [
        each
        for each in reference.reference()
        if table is None or each.header.startswith((f"[{table}]", f"[{table}."))
    ]
    if not tables:
        known = sorted({each.header[1:].partition("]")[0] for each in reference.reference()[1:]})
        raise ConfigurationError(f"{table}: no such table; known are {', '.join(known)}")
    for each in tables:
        report.say(f"{each.header}: {each.meaning}")
        for key in each.keys:
            default = f" (default {key.default})" if key.default else ""
            report.say(f"  {key.name}: {key.values.replace('`', '')}{default}\n      {key.meaning}")
        report.say("")
