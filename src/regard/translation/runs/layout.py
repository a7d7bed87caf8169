"""The files of a run folder and of its checkpoints: names, checksums and tokenizers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from regard import files
from regard.errors import CorruptedError, ModelError, raised_as
from regard.translation import checksums
from regard.translation.checksums import SUMS
from regard.translation.text.tokenizer import Tokenizer

MODEL = "model.safetensors"
OPTIMISER = "optimiser.safetensors"
PROGRESS = "progress.json"
CHECKPOINT_FILES = (MODEL, OPTIMISER, PROGRESS)
# The configuration that a checkpoint was trained with. Those of earlier versions have none.
TRAINED = "configuration.toml"
CONFIGURATION = "config.toml"
CARD = "card.md"
SHORTLIST = "shortlist.safetensors"
ALIGNMENT = "alignment.toml"
DOUBTS = "doubts.json"
WORDS = "words.json"
UNSEEN = "unseen.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
DISTILLED = "distilled.tsv"
BACK_TRANSLATED = "back-translated-{}.tsv"  # the number of the corpus
TOKENIZERS = ("tokenizer.model", "source.model", "target.model")
# The files that checksums.json may name: those that change the output of a model, and a file of earlier versions.
SIGNED = (CONFIGURATION, MODEL, *TOKENIZERS, UNSEEN, SHORTLIST, ALIGNMENT, DOUBTS, WORDS)
_PIECES = TypeAdapter(frozenset[str])
_LARGEST_FILE = 64 * 2**20
CHECKPOINT_NAME = re.compile("step-([0-9]{1,18})(-unvalidated)?")


def checkpoint_name(step: int, unvalidated: bool = False) -> str:
    """The name of a checkpoint's folder: another one once it is validated, so that none is ever written over."""
    return f"step-{step}-unvalidated" if unvalidated else f"step-{step}"


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The step and folder of each finished checkpoint of a run folder, in the order of steps."""
    named = [
        (CHECKPOINT_NAME.fullmatch(path.name), path) for path in (folder / CHECKPOINTS).glob("*")
    ]
    # A checkpoint saved before its validation comes before the one saved after it.
    ranked = [(int(name[1]), name[2] is None, path) for name, path in named if name]
    return [(step, path) for step, _, path in sorted(ranked)]


def tokenizer_files(joint: bool) -> tuple[str, ...]:
    """The names of the tokenizers' files: one for both, or that of the source and that of the target."""
    return TOKENIZERS[:1] if joint else TOKENIZERS[1:]


def checkpoint_sums(folder: Path) -> dict[str, str]:
    """The checksums of a checkpoint: of every file of it, or they are broken themselves. Raises `CheckpointError`."""
    sums = checksums.read(folder, (*CHECKPOINT_FILES, TRAINED))
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


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the source and the target; the same object when they are joint.

    Attributes:
        unseen: the source pieces that occur in no training source; empty where that was not recorded.
    """

    source: Tokenizer
    target: Tokenizer
    unseen: frozenset[str] = frozenset()

    @classmethod
    def open(cls, folder: Path, joint: bool, sums: Mapping[str, str]) -> Tokenizers:
        """The tokenizers of a folder, checked against its checksums where there are any."""
        tokenizers = [
            Tokenizer.open(folder / name, sums.get(name)) for name in tokenizer_files(joint)
        ]
        path, unseen = folder / UNSEEN, frozenset[str]()
        if UNSEEN in sums or path.exists():  # runs of earlier versions have none
            content = checksums.content(path, sums.get(UNSEEN), _LARGEST_FILE)
            unseen = checksums.parsed(_PIECES, content, path, "a list of pieces")
        return cls(tokenizers[0], tokenizers[-1], unseen)

    @cached_property
    def readable(self) -> frozenset[str]:
        """The characters of the source pieces that training sources have: a letter may occur in longer ones alone."""
        return self.source.characters(self.unseen)

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, bytes]:
        """The files that `open` reads, by name; the tokenizers come first."""
        models = (self.source.model, self.target.model)
        named = dict(zip(tokenizer_files(self.joint), models, strict=False))
        unseen = json.dumps(sorted(self.unseen), ensure_ascii=False) + "\n"
        return {**named, UNSEEN: unseen.encode()}


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which is put at `path` when the block ends without a fault.

    Raises:
        ModelError: there is something at `path`, or nothing can be written there.
    """
    if os.path.lexists(path):
        raise ModelError(f"{path}: is there already: choose another name, or remove it first")
    with raised_as(ModelError, f"{path}: cannot be written"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ModelError(f"{path}: cannot be written: {path.parent} is no folder") from None
        with files.new_folder(path) as unfinished:
            yield unfinished
