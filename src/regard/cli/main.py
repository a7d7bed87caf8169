"""`regard`: the commands, and the message and exit code of every failure."""

import functools
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Annotated, Any

import typer

from regard.cli.commands import (
    align,
    config,
    cost,
    data,
    doubts,
    evaluate,
    explore,
    export,
    look,
    models,
    programs,
    remember,
    serve,
    train,
    translate,
)
from regard.cli.group import add, group, print_help
from regard.cli.options import removed
from regard.cli.output import report, streams
from regard.cli.signals import Interrupted, exit_code
from regard.errors import ConfigurationError, RegardError, ran_out_of_memory

# Typer has its own copy of click; this is the base class of its errors.
_ClickException: Any = typer.BadParameter.__mro__[2]

app = group(
    "Translate, train, and see what each word looked at.",
    name="regard",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="""\b
Examples:
  regard translate "El gato negro duerme." --look
  regard train dates
  regard models""",
)


def _version(requested: bool) -> None:
    if requested:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _regard(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure; with any command.")
    ] = False,
) -> None:
    print_help(context)


add(app, translate.translate, serve.serve, train.train, remember.remember)
add(app, evaluate.evaluate, align.align)
app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")
app.add_typer(programs.app, name="programs")
add(app, look.look, explore.explore, cost.cost, export.export)
add(app, doubts.doubts, models.models)
app.command(
    hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(removed.shortlist)


@functools.cache
def command_line() -> Any:
    """All commands, ready to be called."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A failure is reported in one line, the last of standard error."""
    if arguments is None:
        arguments = sys.argv[1:]
        streams.claim()
    streams.write_utf8()
    report.show_logged()
    command = command_line()
    if "_REGARD_COMPLETE" in os.environ:
        command.main(prog_name="regard")
    words, debug = _take_debug(arguments)
    code = 0
    try:
        _check_places(command, words)
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")
                logging.getLogger("matplotlib").setLevel(logging.ERROR)
            try:
                with command.make_context("regard", list(words), obj=words) as context:
                    command.invoke(context)
            except typer.Exit as end:
                code = end.exit_code
        streams.flush()
    except (Exception, KeyboardInterrupt, Interrupted) as fault:
        if debug and not isinstance(fault, BrokenPipeError):
            traceback.print_exception(fault)
        return _failed(fault)
    return code


def _take_debug(arguments: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """`--debug` may stand anywhere before a `--`."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    options = [each for each in words[:end] if each != "--debug"]
    return (*options, *words[end:]), len(options) < end


def _check_places(command: Any, arguments: Sequence[str]) -> None:
    """Refuse an empty file or folder name in an option: as a path it would mean the working folder."""
    words = list(takewhile(lambda word: word != "--", arguments))
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    named = [param for param in command.params if re.search("DIR|FILE|GOLD", str(param.metavar))]
    places = {name for param in named for name in param.opts}
    empty = {name for name, value in pairwise(words) if value == ""}
    empty |= {word.removesuffix("=") for word in words if word.endswith("=")}
    if empty_places := sorted(empty & places):
        raise ConfigurationError(f"{empty_places[0]}: is empty: give the name of a file or folder")


def _failed(fault: BaseException) -> int:
    """Print what happened; the exit code."""
    match fault:
        case BrokenPipeError():
            streams.abandon()
            return 141
        case KeyboardInterrupt():
            text = "interrupted"
        case Interrupted():
            text = "stopped by a signal; no file was left half written"
        case RegardError():
            # Each argument is one fault and one line; line ends within it come from a name.
            lines = [" ".join(str(each).splitlines()) for each in fault.args]
            text = "\n".join(f"error: {line}" for line in lines)
        case _ if isinstance(fault, _ClickException):
            context = getattr(fault, "ctx", None)
            see = f"see `{context.command_path} --help`\n" if context else ""
            text = f"{see}error: {_one_line(fault.format_message()).rstrip('.')}"
        case OSError(filename=None):
            text = f"error: {_one_line(fault.strerror or fault)} (add --debug to see where)"
        case OSError():
            text = f"error: {os.fsdecode(fault.filename)}: {fault.strerror or fault}"
        case _ if ran_out_of_memory(fault):
            text = (
                "error: out of memory: shorter sentences take less, and a smaller --beam or batch"
            )
        case _:
            description = f"{type(fault).__name__}: {_one_line(fault)}"
            text = (
                f"unexpected error: {description} (add --debug to see where, and please report it)"
            )
    _say(text)
    return 2 if isinstance(fault, _ClickException) else exit_code(fault)


def _one_line(fault: object) -> str:
    text = " ".join(str(fault).split())
    return text if len(text) <= 500 else text[:500] + "..."


def _say(text: str) -> None:
    """Print on standard error, after all that was printed on standard output."""
    short = text if len(text) <= 3000 else text[:3000] + "..."
    for stream, message in ((sys.stdout, ""), (sys.stderr, f"{streams.printable(short)}\n")):
        if stream is not None:
            try:
                stream.write(message)
                stream.flush()
            except (OSError, ValueError):
                streams.abandon(stream)
