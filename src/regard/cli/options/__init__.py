"""Options that several commands have, and what they mean."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import shipped
from regard.errors import ConfigurationError, RegardError

if TYPE_CHECKING:
    from regard.translation.translator import Translator

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|DIR",
        help="A bundled model's name or a run folder.",
        autocompletion=shipped.complete_model,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|DIR",
        help="A bundled model's name or a run folder; several times: the mean of what they say. "
        "[default: es-en]",
        autocompletion=shipped.complete_model,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="LANGUAGE", help="The language to translate into, of a model of several."
    ),
]
SourceFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Sentences, one a line.")]
TargetFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Their translations, line for line.")
]
Column = Annotated[int, typer.Option(help="Column of FILES, from 0.")]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, mps.")
]
Beam = Annotated[
    int | None, typer.Option(help="Hypotheses kept; 1 is greedy. [default: the model's own]")
]
LengthPenalty = Annotated[
    float | None, typer.Option(help="Alpha of ((5 + n) / 6)^alpha; more favours length.")
]
CoveragePenalty = Annotated[
    float | None,
    typer.Option(help="Beta: more favours translations that looked at the whole sentence."),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        help="No sequence of so many pieces may occur twice in a translation: stops loops. [default: the model's own]"
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(help="Pieces x beam computed at a time; less takes less memory. [default: 8192]"),
]


class Stored(StrEnum):
    """How weights are kept while they are used."""

    float32 = "float32"
    int8 = "int8"


Quantization = Annotated[
    Stored | None,
    typer.Option(
        help="How weights are kept: int8 is quicker and changes some words. [default: float32]"
    ),
]
Sample = Annotated[
    bool, typer.Option("--sample", help="Draw words by chance instead of the likeliest.")
]
Temperature = Annotated[
    float | None, typer.Option(help="Of --sample: below 1 bolder, above 1 more even.")
]
TopK = Annotated[int | None, typer.Option(help="Of --sample: among so many words.")]
TopP = Annotated[
    float | None, typer.Option(help="Of --sample: among the fewest words of this probability.")
]
Shortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist",
        help="Choose among the words that `regard shortlist` has learnt for each sentence: quicker.",
    ),
]
DEFAULT_MODEL = "es-en"


@dataclass(frozen=True)
class Invocation:
    """What was typed."""

    arguments: tuple[str, ...] = ()


def open_translator(
    model: str | Sequence[str],
    device: str,
    to: str | None = None,
    *,
    shortlist: bool = False,
    stored: Stored | None = None,
) -> Translator:
    """The translator of a name or folder, or of several together, on a device that exists."""
    from regard.translation.translator import Translator

    check_device(device)
    translator = Translator.open(model, device, to, shortlist=shortlist)
    if stored is Stored.int8:
        from regard.translation.models.rounding import round_products

        round_products(translator.model)
    return translator


def check_device(name: str) -> None:
    """Raises `ConfigurationError` when this machine has no such device."""
    import torch

    try:
        torch.empty(0, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        why = str(fault).strip().splitlines()[0][:200] if str(fault).strip() else "not available"
        raise ConfigurationError(f"--device {name}: cannot be used here: {why}") from None


def check_drawing(drawing: Mapping[str, float | None], seed: int | None, sample: bool) -> None:
    """Raises `ConfigurationError` for what is of --sample without it, and for a seed out of range."""
    for name, value in {**drawing, "seed": seed}.items():
        if value is not None and not sample:
            option = "--" + name.replace("_", "-")
            raise ConfigurationError(f"{option} {value}: is for sampling: add --sample")
    if seed is not None and not 0 <= seed < 2**63:
        raise ConfigurationError(f"--seed {seed}: use a whole number, 0 to 2^63 - 1")


def check_batch_tokens(count: int | None) -> None:
    """Raises `ConfigurationError` for a --batch-tokens out of range."""
    if count is not None and not 1 <= count <= 2**31:
        raise ConfigurationError(f"--batch-tokens {count}: use a whole number, 1 to 2^31")


def check_sentences(texts: Sequence[str], advice: str) -> None:
    """Raises `ConfigurationError` for a sentence that is the name of a file: the file is meant, not its name."""
    for text in texts:
        if os.path.isfile(text):
            name = shlex.quote(text)
            raise ConfigurationError(f"TEXT {name} is the name of a file: {advice.format(name)}")


def check_writable(path: Path) -> None:
    """Raises `RegardError` when a file cannot be put there: before the work, not after it."""
    try:
        if path.is_dir():
            raise RegardError(f"{path}: is a folder, expected the name of a file")
        check_parent(path)
        if path.exists() and not path.is_file():
            raise RegardError(f"{path}: is no file that can be replaced")
    except (OSError, ValueError) as fault:
        raise RegardError(f"{path}: cannot be written: {fault}") from None


def check_parent(path: Path) -> None:
    """Raises `RegardError` when nothing new can be made in the folder of this path."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise RegardError(f"{path}: cannot be written: {folder} is a file, not a folder")
    if not folder.is_dir():
        raise RegardError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RegardError(f"{path}: cannot be written: permission denied in {folder}")
