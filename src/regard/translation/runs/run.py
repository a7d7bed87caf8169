"""The run folder: opening it, loading and publishing its model, exporting it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from regard import files
from regard.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptedError,
    ModelError,
    TrainingError,
    raised_as,
)
from regard.translation import checksums, weights
from regard.translation.checksums import SUMS
from regard.translation.models.building import SkipInitialisation, build
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import layout
from regard.translation.runs.layout import (
    CARD,
    CHECKPOINTS,
    CONFIGURATION,
    DOUBTS,
    MODEL,
    TRAINED,
    UNSEEN,
    WORDS,
    Tokenizers,
    checkpoint_sums,
    folder_sums,
    new_folder,
    tokenizer_files,
)
from regard.translation.settings import toml
from regard.translation.settings.configuration import Configuration

# The file that marks a folder of another project, and the module that opens it as a run. That module is in a package
# above this one, so it is imported only when such a folder is opened.
FOREIGN, _OPENING = "config.json", "regard.interop.huggingface.opening"

Numbers = Literal["float32", "float16", "int8"]


@dataclass(frozen=True)
class Run:
    """The folder of a translator: its configuration, tokenizers, checkpoints and model.

    Attributes:
        lock: the lock on the folder, where this process holds it. All that is written into the folder is written
            under it: checksums.json is read, changed and written, and one of two writers would lose its entry.
    """

    folder: Path
    configuration: Configuration
    lock: files.Lock | None = field(default=None, kw_only=True, compare=False)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run, or the folder of another project that is read like one.

        Raises:
            ModelError: the folder is not a run, or its configuration does not have its checksum.
        """
        file = folder / CONFIGURATION
        if not os.path.isfile(file):  # False, not an error, in folders that may not be searched
            if os.path.isfile(folder / FOREIGN):
                run: Run = importlib.import_module(_OPENING).open_folder(folder)
                return run
            raise ModelError(f"{folder}: no run folder or model: it has no {CONFIGURATION}")
        expected = folder_sums(folder).get(CONFIGURATION)
        try:
            content = checksums.content(file, expected, toml.LARGEST_FILE)
        except CorruptedError as fault:
            raise CorruptedError(
                f"{fault}: if you have edited it, remove its line from {folder / SUMS}"
            ) from None
        return cls(folder, toml.decode(content, str(file)))

    @classmethod
    def create(cls, folder: Path, configuration: Configuration, tokenizers: Tokenizers) -> Run:
        """A new run. Raises `TrainingError` when the folder is taken or cannot be written."""
        cls.check_free(folder)
        with raised_as(TrainingError, f"{folder}: cannot be written"):
            files.subfolder(folder / CHECKPOINTS)
            contents = tokenizers.files()
            for name, content in contents.items():
                files.write(folder / name, content)
            # Written from the start, so that a checkpoint never meets another tokenizer.
            content = toml.dump(configuration).encode()
            contents[CONFIGURATION] = content
            checksums.write(
                folder / SUMS, {name: checksums.sha256(c) for name, c in contents.items()}
            )
            # The configuration comes last: a folder that has it has everything.
            files.write(folder / CONFIGURATION, content)
        return cls(folder, configuration)

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse, before any work, a folder that holds a run or cannot be written."""
        if os.path.exists(folder / CONFIGURATION):
            raise TrainingError(
                f"{folder}: already holds a run: add --resume to go on with it, or choose another --run"
            )
        _check_writable(folder)

    def tokenizers(self) -> Tokenizers:
        """The tokenizers of the run, checked against its checksums where there are any."""
        joint = self.configuration.tokenizer.joint
        return Tokenizers.open(self.folder, joint, folder_sums(self.folder))

    @property
    def _signed(self) -> list[str]:
        """The files, other than the model, that every published run has and signs."""
        return [CONFIGURATION, *tokenizer_files(self.configuration.tokenizer.joint)]

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        """The model ready for use: the published one, or else the newest checkpoint's."""
        sums = folder_sums(self.folder)
        if (self.folder / MODEL).exists():
            return self._load(self.folder, sums, tokenizers)
        if MODEL in sums:  # published: a checkpoint may be another model
            raise CorruptedError(
                f"{self.folder / MODEL}: is missing, but {SUMS} lists it: restore it, or publish it again "
                f"with `regard train {self.folder} --resume`"
            )
        newest = self.newest_checkpoint()
        if newest is None:
            raise ModelError(
                f"{self.folder}: nothing trained yet: it has no {MODEL} and no checkpoint"
            )
        return self.checkpoint_model(newest, tokenizers)

    def checkpoint_model(self, checkpoint: Path, tokenizers: Tokenizers) -> TranslationModel:
        """The model of one of its checkpoints, ready for use."""
        self._check_readable(checkpoint)
        return self._load(checkpoint, checkpoint_sums(checkpoint), tokenizers)

    def _load(self, folder: Path, sums: dict[str, str], tokenizers: Tokenizers) -> TranslationModel:
        path = folder / MODEL
        sizes = self.configuration, len(tokenizers.source), len(tokenizers.target)
        with SkipInitialisation():
            # First without memory, so that enormous sizes in a configuration are refused, not allocated.
            with torch.device("meta"):
                shaped = build(*sizes)
            tensors = weights.load(
                path, sums.get(MODEL), lambda shapes: weights.check_shapes(shaped, shapes, path)
            )
            model = build(*sizes)
        weights.load_into(model, tensors, path)
        return model.eval()

    def check_resumable(self, checkpoint: Path) -> None:
        """Raise `CheckpointError` where no training of this configuration can go on from a checkpoint.

        Keys that may change on --resume, and those of [search], may differ. Checkpoints of earlier versions do not say
        their configuration.
        """
        trained = _trained_with(checkpoint)
        changes = toml.differences(trained, self.configuration, free=False) if trained else []
        changes = [change for change in changes if not change[0].startswith("search.")]
        self._refuse(checkpoint, "a training with another configuration", "go on with", changes)

    def _check_readable(self, checkpoint: Path) -> None:
        """Raise `CheckpointError` for a checkpoint of another model, tokenizer or languages.

        No other setting changes what its weights answer.
        """
        if trained := _trained_with(checkpoint):
            changes = toml.table_differences(_read_by(trained), _read_by(self.configuration))
            self._refuse(checkpoint, "another model", "read", changes)

    def _refuse(
        self, checkpoint: Path, kind: str, use: str, changes: list[tuple[str, Any, Any]]
    ) -> None:
        """Raise `CheckpointError` for a checkpoint of another kind, if its configuration has changes."""
        if changes:
            values = (
                f"{key}: {old!r} there, {new!r} in {CONFIGURATION}" for key, old, new in changes
            )
            raise CheckpointError(
                f"{checkpoint}: is of {kind} ({'; '.join(values)}): to {use} it, put the values from there into "
                f"{self.folder / CONFIGURATION}; if it is of another run, move it there"
            )

    def directed(self, tokenizers: Tokenizers, to: str | None) -> Tokenizers:
        """The tokenizers for sentences to be translated into a language; None where the run has only one.

        Raises:
            ConfigurationError: it does not translate into that language, or into several of which none is named.
        """
        data = self.configuration.data
        languages = data.target_languages
        if to is None and len(languages) > 1:
            raise ConfigurationError(
                f"{self.folder}: translates into {', '.join(languages)}: say which with --to"
            )
        if to is not None and to not in languages:
            raise ConfigurationError(
                f"--to {to}: {self.folder} translates into {', '.join(languages)}"
            )
        tags = data.tags_to(to or languages[0])
        return replace(tokenizers, source=tokenizers.source.tagged(tags)) if tags else tokenizers

    def checkpoints(self) -> list[tuple[int, Path]]:
        return layout.checkpoints(self.folder)

    def newest_checkpoint(self) -> Path | None:
        checkpoints = self.checkpoints()
        return checkpoints[-1][1] if checkpoints else None

    def publish(self, tensors: dict[str, torch.Tensor], card: str) -> None:
        with self.locked(), _name_unwritable():
            unsigned = set(self._signed) - folder_sums(self.folder).keys()
            sums = {name: checksums.of(self.folder / name) for name in unsigned}
            self._keep(MODEL, weights.dump(tensors), sums)
            files.write(self.folder / CARD, card.encode())

    def keep_configuration(self) -> list[tuple[str, Any, Any]]:
        """Write the configuration where a resumed training changed it, so that resuming once more has it, too.

        Returns: the keys that changed, each with both values.
        """
        old = Run.open(self.folder).configuration
        if old != self.configuration:
            with _name_unwritable():
                self.keep(CONFIGURATION, toml.dump(self.configuration).encode())
        return toml.differences(old, self.configuration, free=True)

    def keep(self, name: str, content: bytes) -> Path:
        """Write a file of the model, and its checksum where the folder has checksums.

        Raises:
            TrainingError: another process writes to the folder, or it cannot be written or locked.
            OSError: the file cannot be written.
        """
        with self.locked():
            if (self.folder / SUMS).exists():
                self._keep(name, content, {})
            else:
                files.write(self.folder / name, content)
        return self.folder / name

    def _keep(self, name: str, content: bytes, other_sums: dict[str, str]) -> None:
        sums = {**folder_sums(self.folder), **other_sums}
        # Without a checksum while it is written: a kill leaves no new file with the checksum of the old one.
        sums.pop(name, None)
        checksums.write(self.folder / SUMS, sums)
        files.write(self.folder / name, content)
        checksums.write(self.folder / SUMS, {**sums, name: checksums.sha256(content)})

    def content(self, name: str, largest: int | None = None) -> bytes:
        """The bytes of one of its files, compared with its checksum. Raises `ModelError`."""
        return checksums.content(self.folder / name, self.checksum(name), largest)

    def checksum(self, name: str) -> str | None:
        """The checksum that one of its files must have, where there is one."""
        return folder_sums(self.folder).get(name)

    def export(self, folder: Path, numbers: Numbers = "float16") -> None:
        """A copy of what translating needs, with smaller weights.

        Args:
            folder: a new one.
            numbers: how weights are stored: as they are ("float32"), in half precision, or as `weights.rounded` does.

        Raises:
            ModelError: there is something at `folder`, or nothing whole to copy.
        """
        tensors = weights.load(self.folder / MODEL, folder_sums(self.folder).get(MODEL))
        if numbers == "float16":
            tensors = {name: weights.halved(name, tensor) for name, tensor in tensors.items()}
        elif numbers == "int8":
            tensors = weights.rounded(tensors)
        more = [name for name in (UNSEEN, DOUBTS, WORDS) if (self.folder / name).exists()]
        names = [*self._signed, *more]
        contents = {name: self.content(name) for name in [*names, CARD]}
        with new_folder(folder) as unfinished:
            for name, content in contents.items():
                files.write(unfinished / name, content)
            weights.save(tensors, unfinished / MODEL)
            checksums.sign(unfinished, [MODEL, *names])

    def check_there(self, step: int) -> None:
        """Raise `TrainingError` when the run folder was removed, or replaced by that of another training."""
        complete = os.path.isfile(self.folder / CONFIGURATION)
        if not complete or (self.lock is not None and not self.lock.held()):
            raise TrainingError(
                f"{self.folder}: the run folder or its {CONFIGURATION} was removed or replaced during the "
                f"training, which ends at step {step}: nothing more is written there"
            )

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """This run with the lock on its folder, so that no other process writes into it.

        The folder is made where there is none, and removed if nothing was put there. On a file system without locks no
        process is kept away.

        Raises:
            TrainingError: another process writes to it, it cannot be written or locked, or its lock has ended.
        """
        if self.lock is not None:
            if not self.lock.held():
                raise TrainingError(
                    f"{self.folder}: its lock has ended, or was removed with the folder: "
                    "nothing more is written there"
                )
            yield self
            return
        _check_writable(self.folder)
        path = self.folder / ".lock"
        new_folders = [
            each for each in (self.folder, *self.folder.parents) if not os.path.exists(each)
        ]
        try:
            with ExitStack() as stack:
                with raised_as(TrainingError, f"{path}: cannot be locked"):
                    self.folder.mkdir(parents=True, exist_ok=True)
                    lock = stack.enter_context(files.locked(path))
                yield replace(self, lock=lock)
        except files.HeldError as fault:
            if fault.holder == str(os.getpid()):
                reason = "this process is writing to it already: end that first"
            else:
                reason = f"process {fault.holder} is writing to it: wait until it ends"
            raise TrainingError(f"{self.folder}: {reason}, or choose another run folder") from None
        finally:
            for folder in new_folders:
                with suppress(OSError):  # something was put there
                    folder.rmdir()


def _trained_with(checkpoint: Path) -> Configuration | None:
    """The configuration that a checkpoint was trained with; None in those of earlier versions."""
    expected = checkpoint_sums(checkpoint).get(TRAINED)
    if expected is None:
        return None
    path = checkpoint / TRAINED
    return toml.decode(checksums.content(path, expected), str(path))


def _read_by(configuration: Configuration) -> dict[str, Any]:
    """The settings that say how weights are read: the model, its tokenizer and its languages."""
    data = configuration.data
    return {
        "languages from": list(data.source_languages),
        "languages into": list(data.target_languages),
        "model": configuration.model.model_dump(),
        "tokenizer": configuration.tokenizer.model_dump(),
    }


@contextmanager
def _name_unwritable() -> Iterator[None]:
    """Raise `TrainingError` with the name of a file that cannot be written."""
    try:
        yield
    except OSError as fault:
        raise TrainingError(f"{fault.filename}: cannot be written: {fault.strerror}") from None


def _check_writable(folder: Path) -> None:
    """Raise `TrainingError` where no run folder can be made or written to."""
    if folder.resolve() == Path(folder.resolve().anchor):
        raise TrainingError(
            f"{folder}: is the root of the file system: give --run a folder below it"
        )
    nearest = folder
    while not os.path.exists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise TrainingError(f"{folder}: cannot be written: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TrainingError(f"{folder}: cannot be written: permission denied in {nearest}")
