"""Options that choose a model, its target language and its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import shipped
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.translator import Translator

DEFAULT_MODEL = "es-en"
# For fewer sentences, loading compiled loops takes longer than translating without them (benchmarks/first_minute.py).
FEW = 100


MODEL = typer.Option(
    "--model",
    "-m",
    metavar="NAME|DIR",
    help="A bundled model's name or a run folder.",
    autocompletion=shipped.complete_model,
)
Model = Annotated[str, MODEL]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="LANGUAGE", help="The language to translate into, of a model of several."
    ),
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, mps.")
]


@dataclass(frozen=True)
class ModelOptions:
    """One model on one device."""

    model: Model = DEFAULT_MODEL
    to: To = None
    device: Device = "cpu"

    def open(self) -> Translator:
        return open_translator(self.model, self.device, self.to, FEW)


def open_translator(
    model: str | Sequence[str], device: str, to: str | None = None, loops_after: int = 0
) -> Translator:
    """The translator of a name or folder, or of several together.

    The layers translate `loops_after` sentences before compiled loops are loaded.
    Raises `ConfigurationError` when this machine has no such device.
    """
    from regard.translation.translator import Translator

    check_device(device)
    translator = Translator.open(model, device, to)
    if loops_after:
        translator.refresh(loops_after=loops_after)
    return translator


def check_device(name: str) -> None:
    """Raises `ConfigurationError` when this machine has no such device."""
    from regard.loops.availability import device_objection

    if objection := device_objection(name):
        raise ConfigurationError(f"--device {name}: {objection}")
