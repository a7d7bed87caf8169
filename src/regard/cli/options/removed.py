"""Options and commands of earlier versions: what has become of them."""

from typing import Annotated, Literal

import typer

from regard.cli.output import report
from regard.errors import ConfigurationError

_SHORTLISTS = "shortlists were removed, because they changed words and saved little time"

Shortlist = Annotated[bool, typer.Option("--shortlist", hidden=True)]
Quantization = Annotated[
    Literal["float32", "int8"] | None, typer.Option("--quantization", hidden=True)
]


def note_removed(*, shortlist: bool, int8: bool, instead: str) -> None:
    """Notes on options that have no effect any more; `instead` says where int8 is to be had."""
    if shortlist:
        report.note(f"--shortlist has no effect: {_SHORTLISTS}: leave it out")
    if int8:
        report.note(
            f"--quantization int8 has no effect: Regard searches in float32; for int8: {instead}"
        )


def shortlist() -> None:
    """Removed: shortlists changed words and saved little time."""
    raise ConfigurationError(
        f"regard shortlist: {_SHORTLISTS}: leave this command out; a shortlist.safetensors in a "
        "model's folder is ignored"
    )
