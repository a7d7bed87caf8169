"""The files of a run folder and of its checkpoints, and their checksums."""

from __future__ import annotations

import re
from pathlib import Path

from regard.errors import CorruptedError
from regard.translation import checksums
from regard.translation.checksums import SUMS

MODEL = "model.safetensors"
OPTIMISER = "optimiser.safetensors"
PROGRESS = "progress.json"
CHECKPOINT_FILES = (MODEL, OPTIMISER, PROGRESS)
CONFIGURATION = "config.toml"
CARD = "card.md"
SHORTLIST = "shortlist.safetensors"
ALIGNMENT = "alignment.toml"
UNSEEN = "unseen.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
TOKENIZERS = ("tokenizer.model", "source.model", "target.model")
# The files that checksums.json may name: those that change the output of a model.
SIGNED = (CONFIGURATION, MODEL, *TOKENIZERS, UNSEEN, SHORTLIST, ALIGNMENT)
CHECKPOINT_NAME = re.compile("step-([0-9]{1,18})(-unvalidated)?")


def checkpoint_name(step: int, unvalidated: bool = False) -> str:
    """The name of a checkpoint's folder: another one once it is validated, so that none is ever written over."""
    return f"step-{step}-unvalidated" if unvalidated else f"step-{step}"


def checkpoint_sums(folder: Path) -> dict[str, str]:
    """The checksums of a checkpoint: of every file of it, or they are broken themselves. Raises `CheckpointError`."""
    sums = checksums.read(folder, CHECKPOINT_FILES)
    for name in set(CHECKPOINT_FILES) - sums.keys():
        raise CorruptedError(f"{folder / SUMS}: corrupted: it has no checksum of {name}")
    return sums


def folder_sums(folder: Path) -> dict[str, str]:
    """The checksums of a run folder; none where it was made without."""
    if not (folder / SUMS).exists():
        return {}
    try:
        return checksums.read(folder, SIGNED)
    except CorruptedError as fault:
        raise CorruptedError(f"{fault}: remove it if you trust the files beside it") from None
