"""Commands that refuse an option which is given twice: of two values, click would silently use the last."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Once:
    """A mixin: an option may be given again only where it collects its values in a list."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)  # type: ignore[misc]
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, positional, order = parse(args)
            counts = Counter(each for each in order if each.param_type_name == "option")
            for option, count in counts.items():
                if count > 1 and not (option.multiple or option.is_eager or ctx.resilient_parsing):
                    names = "/".join([option.opts[0], *option.secondary_opts])
                    ctx.fail(f"{names} is given {count} times: give it once")
                if "--set" in option.opts:
                    _check_keys(ctx, values[option.name])
            return values, positional, order

        parser.parse_args = parse_once
        return parser


def _check_keys(ctx: Any, changes: list[str]) -> None:
    """Refuse a key of a configuration that several changes KEY=VALUE set."""
    keys = Counter("".join(change.partition("=")[0].split()) for change in changes)
    for key, count in keys.items():
        if count > 1:
            ctx.fail(f"--set {key} is given {count} times: give it once")


class Command(_Once, TyperCommand):
    """A command of typer."""


class Group(_Once, TyperGroup):
    """A group of commands of typer."""
