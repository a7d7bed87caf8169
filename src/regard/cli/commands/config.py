"""`regard config`: the shipped configurations, and every key that a configuration may have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli import shipped
from regard.cli.group import add, group
from regard.cli.output import report
from regard.errors import ConfigurationError


def list_() -> None:
    """List the shipped configurations."""
    report.say(shipped.configuration_lines())


def show(
    name: Annotated[
        str, typer.Argument(metavar="CONFIG", autocompletion=shipped.complete_configuration)
    ],
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    full: bool = False,
) -> None:
    """Print a configuration, checked, in TOML.

    Args:
        name: A shipped configuration's name, a TOML file, or a run folder.
        changes: Change a key; implies --full.
        full: Print every key, with the defaults filled in.
    """
    from regard.translation.settings import toml

    run_configuration = Path(name) / "config.toml"
    path = run_configuration if run_configuration.is_file() else shipped.configuration(name)
    checked = toml.read(path, tuple(changes or ()))
    filled = toml.dump(checked) if full or changes else path.read_text(encoding="utf-8-sig")
    report.say(filled.rstrip("\n"))


def keys(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", autocompletion=shipped.complete_table)
    ] = None,
    format: Literal["text", "markdown"] = "text",
) -> None:
    """Explain every key: its values, its default and its meaning.

    Args:
        table: Only this table: data, model, training, ...
        format: Text, or the page of the documentation.
    """
    from regard.translation.settings import reference

    if format == "markdown":
        if table is not None:
            raise ConfigurationError(f"--format markdown prints all tables: leave {table} out")
        report.say(reference.markdown().rstrip("\n"))
        return
    tables = [
        entry
        for entry in reference.reference()
        if table is None or entry.header.startswith((f"[{table}]", f"[{table}."))
    ]
    if not tables:
        table_names = ", ".join(shipped.tables())
        raise ConfigurationError(f"{table}: no such table; known are {table_names}")
    for entry in tables:
        report.say(f"{entry.header}: {entry.meaning}")
        for key in entry.keys:
            default = f" (default {key.default})" if key.default else ""
            report.say(f"  {key.name}: {key.values.replace('`', '')}{default}\n      {key.meaning}")
        report.say("")


app = group(
    "List and show configurations; explain their keys.",
    epilog="""\b
Examples:
  regard config list
  regard config show tatoeba-es-en > my.toml
  regard config show my.toml --full
  regard config keys training""",
)
add(app, list_, show, keys)
