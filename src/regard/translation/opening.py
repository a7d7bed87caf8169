"""Opening models by name or folder, one or several that are averaged."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from regard.errors import ConfigurationError, ModelError
from regard.loops.availability import device_objection
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run, Tokenizers

BUNDLED = Path(__file__).parent.parent / "bundled"


def open_runs(names_or_folders: str | Path | Sequence[str | Path]) -> tuple[list[Run], Tokenizers]:
    """The runs of names or folders, and the tokenizers that all of them share.

    Raises:
        ModelError: one of them is missing or broken, or has other tokenizers than the first.
    """
    if isinstance(names_or_folders, str | Path):
        names_or_folders = [names_or_folders]
    if not names_or_folders:
        raise ModelError("no model is named: give the name of a bundled model or a run folder")
    runs = [Run.open(find(name)) for name in names_or_folders]
    tokenizers, *others_tokenizers = (run.tokenizers() for run in runs)
    for name, run_tokenizers in zip(names_or_folders[1:], others_tokenizers, strict=True):
        for side in ("source", "target"):
            expected, actual = getattr(tokenizers, side), getattr(run_tokenizers, side)
            if expected.model != actual.model:
                raise ModelError(
                    f"{name}: its {side} vocabulary ({len(actual)} pieces) is not that of "
                    f"{names_or_folders[0]} ({len(expected)} pieces): only models trained with one tokenizer "
                    "can be averaged"
                )
    unseen = tokenizers.unseen.union(
        *(run_tokenizers.unseen for run_tokenizers in others_tokenizers)
    )
    return runs, replace(tokenizers, unseen=unseen)


def open_model(
    names_or_folders: str | Path | Sequence[str | Path], device: str | torch.device, to: str | None
) -> tuple[Run, TranslationModel, Tokenizers]:
    """The run of a name or folder, its model on a device, and its tokenizers for sentences to translate into `to`.

    Several models are one `Ensemble`, with the run of the first.

    Raises:
        ModelError: see `open_runs`.
        ConfigurationError: this machine has no such device, or the model does not translate into that language.
    """
    if objection := device_objection(device):
        raise ConfigurationError(f"device {device}: {objection}")
    runs, tokenizers = open_runs(names_or_folders)
    tokenizers = runs[0].directed(tokenizers, to)
    models = [run.model(tokenizers).to(device) for run in runs]
    return runs[0], models[0] if len(models) == 1 else Ensemble(models), tokenizers


def bundled() -> dict[str, Path]:
    return {folder.name: folder for folder in sorted(BUNDLED.glob("*")) if folder.is_dir()}


def find(name_or_folder: str | Path) -> Path:
    """The folder of a bundled model's name, or the folder itself."""
    models = bundled()
    folder = models.get(str(name_or_folder), Path(name_or_folder))
    if not os.path.isdir(folder):  # False, not an error, for names that no folder can have
        names = ", ".join(models) or "none"
        raise ModelError(f"{name_or_folder}: no such model or run folder; bundled models: {names}")
    return folder
