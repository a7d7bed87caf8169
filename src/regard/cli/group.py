"""A group of commands whose help lists each with its whole first sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

# Longer than any first sentence.
_WHOLE = 10_000


class Group(TyperGroup):
    """Typer's own list cuts sentences off to fit one line; these continue on the next."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for command in self.commands.values():
            command.short_help = command.get_short_help_str(_WHOLE)
        super().format_commands(ctx, formatter)
