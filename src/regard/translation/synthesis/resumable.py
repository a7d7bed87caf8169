"""A long file that is written in parts: interrupted work is resumed where its last whole line ends."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt

from regard import files
from regard.errors import ConfigurationError, DataError, RegardError, one_line, raised_as
from regard.translation.settings.toml import table_differences
from regard.translation.synthesis.filtering import Tally

VERSION = 1
_CHECKSUM = re.compile("[0-9a-f]{64}")


class Progress(BaseModel, extra="forbid"):
    """The counts of lines, the digest of those that were read, and the number of chunks."""

    tally: Tally = Tally()
    digest: str = ""
    chunks: int = 0


class _Record(BaseModel):
    """The content of `OUT.part.json`."""

    version: int = VERSION
    settings: dict[str, Any]
    bytes: NonNegativeInt = 0
    state: Progress = Progress()


class ResumableFile:
    """The file `OUT.part` that becomes OUT, and the record of its whole lines in `OUT.part.json`.

    Each addition is forced to the disk before the record counts it. After an interruption the counted bytes are
    whole lines, and the bytes behind them are cut off. Work that fails before its first line leaves no file.
    """

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self._journal = out.with_name(out.name + ".part.json")
        self._record = _Record(settings=settings)

    @property
    def record(self) -> Path:
        """The file that tells what a finished file was made from, if that was to be kept."""
        return self.out.with_name(self.out.name + ".json")

    def final_progress(self, *, ignored: Collection[str] = ()) -> Progress | None:
        """The final progress of a file that was finished before and whose record was kept; None where there is no file.

        Raises:
            ConfigurationError: the file was made with other settings than those ignored, or has no record.
        """
        if not os.path.lexists(self.out):
            return None
        try:
            record = _Record.model_validate_json(files.read(self.record), strict=True)
        except (OSError, ValueError):
            raise ConfigurationError(
                f"{self.out}: is there already, and {self.record.name} does not tell what it was made from: remove it"
            ) from None
        self._compare(record.settings, "made", ignored)
        return record.state

    @contextmanager
    def begin(self, *, resume: bool) -> Iterator[Progress]:
        """Lock the file; yields the progress that was recorded last, if `resume` and there is an unfinished file.

        Raises:
            RegardError: the file is there already, another process is making it, or `OUT.part` was made by
                another program.
            ConfigurationError: it was begun and `resume` is False, or it was begun with other settings.
        """
        with self._lock():
            resumes = self._is_unfinished(resume)
            if resumes:
                self._record = self._read()
            try:
                self._cut()
                if not resumes:
                    self._save(self._record)
                yield self._record.state
            except BaseException:
                if not self._record.bytes:
                    for path in (self.part, self._journal):
                        with suppress(OSError):
                            path.unlink(missing_ok=True)
                raise

    def add(self, lines: str, state: Progress) -> None:
        """Add whole lines, then record where the work stands."""
        content, counted = lines.encode(), self._record.bytes
        with raised_as(RegardError, f"{self.part}: cannot be written"):
            # A removed file raises here and is not made again.
            if self.part.stat().st_size != counted:
                raise RegardError(
                    f"{self.part}: another process has changed it: remove it and begin again"
                )
            files.append(self.part, content)
            files.force(self.part)
        settings = self._record.settings
        self._save(_Record(settings=settings, bytes=counted + len(content), state=state))

    def finish(self, *, keep_record: bool = False) -> None:
        """Rename the file to its final name."""
        with raised_as(RegardError, f"{self.out}: cannot be written"):
            if keep_record:
                files.write(self.record, self._journal.read_bytes())
            os.replace(self.part, self.out)
            files.sync_folder(self.out.parent)
            self._journal.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        lock = self.out.with_name(self.out.name + ".part.lock")
        with ExitStack() as stack:
            try:
                with raised_as(RegardError, f"{lock}: cannot be locked"):
                    stack.enter_context(files.locked(lock))
            except files.HeldError:
                raise RegardError(
                    f"{self.out}: another process is making it: wait for it, or choose another name"
                ) from None
            yield

    def _is_unfinished(self, resume: bool) -> bool:
        """Whether there is an unfinished file to resume; what another program has made is refused."""
        if os.path.lexists(self.out):
            raise RegardError(f"{self.out}: is there already: remove it, or choose another name")
        is_unfinished = self._journal.exists() and self.part.exists()
        if is_unfinished and not resume:
            raise ConfigurationError(
                f"{self.out}: was begun and not finished: add --resume to go on, or remove {self.part}"
            )
        is_file = self.part.is_file() and not self.part.is_symlink()
        if os.path.lexists(self.part) and not (
            is_file and (is_unfinished or not self.part.stat().st_size)
        ):
            raise RegardError(
                f"{self.part}: exists already and is not an unfinished table: remove it, or choose another name"
            )
        return is_unfinished

    def _cut(self) -> None:
        """Cut off bytes that were never counted; make the file where there is none."""
        with (
            raised_as(RegardError, f"{self.part}: cannot be written"),
            self.part.open("ab") as file,
        ):
            if file.tell() < self._record.bytes:
                raise DataError(
                    f"{self.part}: is shorter than {self._journal.name} says: remove both and begin again"
                )
            file.truncate(self._record.bytes)

    def _save(self, record: _Record) -> None:
        with raised_as(RegardError, f"{self._journal}: cannot be written"):
            files.write(self._journal, (record.model_dump_json(indent=1) + "\n").encode())
        self._record = record

    def _read(self) -> _Record:
        with raised_as(DataError, f"{self._journal}: cannot be read"):
            content = self._journal.read_bytes()
        try:
            record = _Record.model_validate_json(content, strict=True)
            if record.version != VERSION:
                raise ValueError(f"format {record.version}, this program reads format {VERSION}")
        except ValueError as fault:
            raise DataError(f"{self._journal}: corrupted or truncated: {one_line(fault)}") from None
        self._compare(record.settings, "begun")
        return record

    def _compare(self, settings: dict[str, Any], done: str, ignored: Collection[str] = ()) -> None:
        """Raise `ConfigurationError`, with the first differences, unless the settings are those of before."""
        differences = [
            _difference(name, old, new)
            for name, old, new in table_differences(settings, self._record.settings)
            if name not in ignored
        ]
        if differences:
            raise ConfigurationError(
                f"{self.out}: was {done} with other settings: {'; '.join(differences)[:500]}: "
                f"use those of before, or remove {self.out if done == 'made' else self.part}"
            )


def _difference(name: str, old: Any, new: Any) -> str:
    """A setting with both values; of a text or a model that is known by its checksum, the name alone."""
    if any(isinstance(value, str) and _CHECKSUM.fullmatch(value) for value in (old, new)):
        return f"the {name} changed"
    return f"{name}: {old!r} before, {new!r} asked for"
