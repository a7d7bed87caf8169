"""The run folder: configuration, tokenizers, checkpoints and, for use, the model with its card."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from regard import files
from regard.translation import configuration as configurations
from regard.translation import weights
from regard.translation.configuration import Configuration
from regard.translation.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptedError,
    ModelError,
    TrainingError,
)
from regard.translation.folders import new_folder
from regard.translation.models.building import Undrawn, build
from regard.translation.models.protocol import TranslationModel
from regard.translation.text.tokenizer import Tokenizer

MODEL = "model.safetensors"
SUMS = "checksums.json"
CONFIGURATION = "config.toml"
CARD = "card.md"
SHORTLIST = "shortlist.safetensors"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
# Folders of other projects: the file that tells one, and what reads it. The reader stands above this room, so it is
# named here and imported only when such a folder is opened; it answers a run like any other.
FOREIGN = {"config.json": ("regard.interop.huggingface.opening", "open_folder")}
_CHECKPOINT = re.compile("step-([0-9]{1,18})(-unvalidated)?")


@dataclass(frozen=True)
class Tokenizers:
    """How the source and the target are cut into pieces; one and the same object when joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, Tokenizer]:
        if self.joint:
            return {"tokenizer.model": self.source}
        return {"source.model": self.source, "target.model": self.target}


@dataclass(frozen=True)
class Run:
    """A folder in which a translator is trained, kept and found again."""

    folder: Path
    configuration: Configuration

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run, or the folder of another project that is read like one.

        Raises:
            ModelError: the folder is none.
        """
        file = folder / CONFIGURATION
        if not os.path.isfile(file):  # False, not an error, in folders that may not be searched
            for name, (room, reader) in FOREIGN.items():
                if os.path.isfile(folder / name):
                    found: Run = getattr(importlib.import_module(room), reader)(folder)
                    return found
            raise ModelError(f"{folder}: no run folder or model: it has no {CONFIGURATION}")
        return cls(folder, configurations.read(file))

    @classmethod
    def create(cls, folder: Path, configuration: Configuration, tokenizers: Tokenizers) -> Run:
        """A new run. Raises `TrainingError` when the folder is taken or cannot be written."""
        cls.check_free(folder)
        try:
            (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            for name, tokenizer in tokenizers.files().items():
                files.write(folder / name, tokenizer.model)
            # From the start, so that no tokenizer is ever exchanged for another behind a checkpoint's back.
            write_sums(folder, list(tokenizers.files()))
            # The configuration comes last: a folder that has it has everything.
            files.write(folder / CONFIGURATION, configurations.dump(configuration).encode())
        except OSError as fault:
            raise TrainingError(f"{folder}: cannot be written: {fault.strerror}") from None
        return cls(folder, configuration)

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse, before any work, a folder that holds a run or cannot be written."""
        if os.path.exists(folder / CONFIGURATION):
            raise TrainingError(
                f"{folder}: already holds a run: add --resume to go on with it, or choose another --run"
            )
        if os.path.exists(folder) and not folder.is_dir():
            raise TrainingError(f"{folder}: is a file, expected a folder for the run")
        nearest = folder
        while not os.path.exists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            raise TrainingError(f"{folder}: cannot be written: {nearest} is a file, not a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise TrainingError(f"{folder}: cannot be written: permission denied in {nearest}")

    def tokenizers(self) -> Tokenizers:
        """The tokenizers of the run, checked against its checksums where there are any."""
        sums = self._sums()
        names = (
            ["tokenizer.model"]
            if self.configuration.tokenizer.joint
            else ["source.model", "target.model"]
        )
        opened = []
        for name in names:
            _check_sum(self.folder / name, sums)
            opened.append(Tokenizer.open(self.folder / name))
        return Tokenizers(opened[0], opened[-1])

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        """The model ready for use: the published one, or else the newest checkpoint's."""
        path = self.folder / MODEL
        if path.exists():
            _check_sum(path, self._sums())
        else:
            newest = self.newest_checkpoint()
            if newest is None:
                raise ModelError(
                    f"{self.folder}: nothing trained yet: it has no {MODEL} and no checkpoint"
                )
            path = newest / MODEL
            _check_sum(path, read_sums(newest))
        return self.model_from(path, tokenizers)

    def model_from(self, path: Path, tokenizers: Tokenizers) -> TranslationModel:
        """The model of one file of weights."""
        tensors = weights.load(path)
        sizes = self.configuration, len(tokenizers.source), len(tokenizers.target)
        # First without memory behind it: a configuration's enormous sizes are refused, not allocated.
        with Undrawn():
            with torch.device("meta"):
                weights.check_fits(build(*sizes), tensors, path)
            model = build(*sizes)
        weights.load_into(model, tensors, path)
        return model.eval()

    def directed(self, tokenizers: Tokenizers, to: str | None) -> Tokenizers:
        """The tokenizers for sentences that are to be translated into a language; None where the run knows but one.

        Raises:
            ConfigurationError: it does not translate into that language, or into several of which none is named.
        """
        data = self.configuration.data
        known = data.target_languages
        if to is None and len(known) == 1:
            return tokenizers
        if to is None:
            raise ConfigurationError(
                f"{self.folder}: translates into {', '.join(known)}: say which with --to"
            )
        if to not in known:
            raise ConfigurationError(f"--to {to}: {self.folder} translates into {', '.join(known)}")
        tags = data.tags_to(to)
        return Tokenizers(tokenizers.source.tagged(tags), tokenizers.target) if tags else tokenizers

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Every checkpoint's step and folder, by its step whatever the clock said; what was never finished is none."""
        named = [
            (_CHECKPOINT.fullmatch(path.name), path)
            for path in (self.folder / CHECKPOINTS).glob("*")
        ]
        # One that was saved before its validation comes before the one saved after it.
        found = [(int(name[1]), name[2] is None, path) for name, path in named if name]
        return [(step, path) for step, _, path in sorted(found)]

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint of the highest step."""
        found = self.checkpoints()
        return found[-1][1] if found else None

    def publish(self, tensors: dict[str, torch.Tensor], card: str) -> None:
        """Put weights and card in the run folder for use."""
        # Without checksums until all is written: a kill in between leaves no new weights under old sums.
        (self.folder / SUMS).unlink(missing_ok=True)
        weights.save(tensors, self.folder / MODEL)
        files.write(self.folder / CARD, card.encode())
        self._write_sums(self.folder)

    def export(self, folder: Path, *, half: bool = True) -> None:
        """A copy of what translating needs, weights in half precision.

        Raises `ModelError` when there is something at `folder`, or nothing whole to copy.
        """
        _check_sum(self.folder / MODEL, self._sums())
        tensors = weights.load(self.folder / MODEL)
        if half:
            tensors = {name: _halved(name, tensor) for name, tensor in tensors.items()}
        names = [CONFIGURATION, CARD, *self.tokenizers().files()]
        if (self.folder / SHORTLIST).exists():
            names.append(SHORTLIST)
        contents = {name: self._content(name) for name in names}
        with new_folder(folder) as unfinished:
            for name, content in contents.items():
                files.write(unfinished / name, content)
            weights.save(tensors, unfinished / MODEL)
            self._write_sums(unfinished)

    def _content(self, name: str) -> bytes:
        path = self.folder / name
        try:
            return path.read_bytes()
        except OSError as fault:
            raise ModelError(f"{path}: cannot be read: {fault.strerror}") from None

    def _sums(self) -> dict[str, str]:
        if not (self.folder / SUMS).exists():
            return {}
        try:
            return read_sums(self.folder)
        except CorruptedError as fault:
            raise CorruptedError(f"{fault}: remove it if you trust the files beside it") from None

    def _write_sums(self, folder: Path) -> None:
        write_sums(folder, [MODEL, *self.tokenizers().files()])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other trainers out of the folder while this one works in it."""
        path = self.folder / ".lock"
        try:
            # Its content is replaced: a link in somebody's folder must not lead to another file.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as fault:
            raise TrainingError(f"{path}: cannot be written: {fault.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
                raise TrainingError(
                    f"{self.folder}: process {holder} is training in it: wait for it or choose another --run"
                ) from None
            except OSError as fault:  # a file system without locks, for one
                raise TrainingError(f"{path}: cannot be locked: {fault.strerror}") from None
            with suppress(
                OSError
            ):  # who holds it is good to know, no more: a full disk is told by what matters
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
            yield
        finally:
            os.close(handle)


def _halved(name: str, tensor: torch.Tensor) -> torch.Tensor:
    half = tensor.half()
    if not bool(torch.isfinite(half).all()):
        raise ModelError(
            f"tensor {name} holds numbers beyond half precision: export with half=False"
        )
    return half


def checkpoint_name(step: int, unvalidated: bool = False) -> str:
    """The name of a checkpoint's folder: another one once it is validated, so that none is ever written over."""
    return f"step-{step}-unvalidated" if unvalidated else f"step-{step}"


def write_sums(folder: Path, names: list[str]) -> None:
    """Write the sha256 of some files beside them."""
    sums = {name: weights.sha256(folder / name) for name in sorted(names)}
    files.write(folder / SUMS, (json.dumps(sums, indent=1) + "\n").encode())


def read_sums(folder: Path) -> dict[str, str]:
    """The checksums kept in a folder. Raises `CheckpointError` when they cannot be read."""
    path = folder / SUMS
    try:
        sums = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(sums, dict) or not all(isinstance(s, str) for s in sums.values()):
            raise ValueError("no table of checksums")
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read: {fault.strerror}") from None
    except (ValueError, RecursionError):
        raise CorruptedError(f"{path}: corrupted or truncated: no table of checksums") from None
    return sums


def _check_sum(path: Path, sums: dict[str, str]) -> None:
    expected = sums.get(path.name)
    if sums and expected is None:
        raise CorruptedError(f"{path.parent / SUMS}: corrupted: it has no checksum of {path.name}")
    try:
        if path.suffix == ".safetensors":
            weights.check_header(path)
        found = weights.sha256(path)
    except OSError as fault:
        raise ModelError(f"{path}: cannot be read: {fault.strerror}") from None
    if expected is not None and found != expected:
        raise CorruptedError(
            f"{path}: corrupted or truncated: its sha256 is {found[:12]}..., {SUMS} says {expected[:12]}..."
        )
