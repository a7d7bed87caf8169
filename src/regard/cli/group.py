"""Commands of typer from functions: options from dataclasses, help texts from docstrings; groups of commands."""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
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


# Longer than any first sentence.
_WHOLE = 10_000
_SECTION = re.compile(r"^(Args|Attributes|Examples):\n((?: .*\n*|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Group(_Once, TyperGroup):
    """Typer's own list cuts sentences off to fit one line; these continue on the next."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for command in self.commands.values():
            command.short_help = command.get_short_help_str(_WHOLE)
        super().format_commands(ctx, formatter)


def group(help: str, **settings: Any) -> typer.Typer:
    """A group of commands. Called without a command, it prints its help."""
    return typer.Typer(
        cls=Group,
        help=help,
        callback=print_help,
        rich_markup_mode=None,
        invoke_without_command=True,
        **settings,
    )


def print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def add(app: typer.Typer, *commands: Callable[..., None]) -> None:
    """Add functions to a group: the section "Examples" of a docstring is printed below its options."""
    for command in commands:
        examples = _sections(command).get("Examples", "").rstrip()
        indented = re.sub("^    ", "  ", examples, flags=re.MULTILINE)
        epilog = f"\b\nExamples:\n{indented}" if examples else None
        # A name such as list_ is not to hide Python's own.
        name = command.__name__.rstrip("_").replace("_", "-")
        app.command(name, cls=Command, epilog=epilog)(grouped(command))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each parameter, and for each field of the dataclasses among its parameters.

    Name, type and default become the option's, and the entry in the section "Args" or "Attributes" of the docstring
    becomes its help. A `typer.Option` or `typer.Argument` in an annotation adds to that. When the command runs, the
    dataclasses are made of the values of their options.
    """
    parameters = list(_parameters(command))

    @wraps(command)
    def expanded(**given: Any) -> None:
        _call(command, given)

    expanded.__doc__ = _SECTION.sub("", inspect.getdoc(command) or "")
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in parameters}
    return expanded


def _parameters(declared: Callable[..., Any]) -> Iterator[Parameter]:
    sections = _sections(declared)
    described = dict(_ENTRY.findall(sections.get("Args", "") + sections.get("Attributes", "")))
    hints = get_type_hints(declared, include_extras=True)
    for name, parameter in inspect.signature(declared).parameters.items():
        kind = hints[name]
        if is_dataclass(kind) and isinstance(kind, type):
            yield from _parameters(kind)
            continue
        if kind is not typer.Context:
            kind = _with_help(name, kind, " ".join(described.get(name, "").split()))
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)


def _with_help(name: str, hint: Any, help: str) -> Any:
    """The annotation of an option. A switch has no `--no-` form and a path is a FILE unless told otherwise."""
    kind, *declarations = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    option = copy.copy(declarations[0]) if declarations else typer.Option()
    option.help = help or option.help
    if kind is bool and not declarations:
        option.param_decls = ("--" + name.strip("_").replace("_", "-"),)
    if "Path" in str(kind):
        option.metavar = option.metavar or "FILE"
    return Annotated[kind, option]


def _call(declared: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Call a function, or make a dataclass, with the options that are its own or those of its dataclasses."""
    hints = get_type_hints(declared)
    return declared(
        **{
            name: _call(hints[name], values) if is_dataclass(hints[name]) else values[name]
            for name in inspect.signature(declared).parameters
        }
    )


def _sections(declared: Callable[..., Any]) -> dict[str, str]:
    return dict(_SECTION.findall((inspect.getdoc(declared) or "") + "\n"))
