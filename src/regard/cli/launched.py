"""A command as it is typed, and one report of a failure for all processes of torchrun."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from regard.cli.signals import exit_code

if TYPE_CHECKING:
    from regard.translation.training.processes import Processes


def command(arguments: Sequence[str]) -> str:
    """A `regard` command as it is typed, with torchrun before it where torchrun started this process.

    >>> command(["train", "my corpus.toml"])
    "regard train 'my corpus.toml'"
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        return shlex.join(["regard", *arguments])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    machines = ["--nnodes", str(processes // here)] if processes > here else []
    launcher = ["torchrun", *machines, "--nproc-per-node", str(here)]
    # After --, torchrun does not take options such as --run for its own.
    return shlex.join([*launcher, "-m", "--", "regard", *arguments])


@contextmanager
def first_failure_only(processes: Processes) -> Iterator[None]:
    """Only the process that failed first reports the failure; the others end silently."""
    from regard.translation.training.processes import ended_elsewhere

    try:
        yield
    except typer.Exit:
        raise
    except BaseException as fault:
        if not processes.first_to_fail():
            raise typer.Exit(exit_code(fault)) from None
        ended = ended_elsewhere(fault) if processes.size > 1 else None
        if ended is not None:
            raise ended from None
        raise
