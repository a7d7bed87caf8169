"""Groups of commands: help that lists each command with its whole first sentence."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

# Longer than any first sentence.
_WHOLE = 10_000


class Group(TyperGroup):
    """Typer's own list cuts sentences off to fit one line; these continue on the next."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for command in self.commands.values():
            command.short_help = command.get_short_help_str(_WHOLE)
        super().format_commands(ctx, formatter)


def group(help: str, epilog: str) -> typer.Typer:
    """A group that prints its help when it is called without a command."""
    made = typer.Typer(
        cls=Group, help=help, epilog=epilog, rich_markup_mode=None, invoke_without_command=True
    )
    made.callback()(print_help)
    return made


def print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
