"""A long file that is written in parts: interrupted work is resumed where its last whole line ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt

from regard import files
from regard.errors import ConfigurationError, DataError, RegardError, one_line, raised_as

VERSION = 1


class _Record(BaseModel):
    """The content of `OUT.part.json`."""

    version: int = VERSION
    settings: dict[str, Any]
    bytes: NonNegativeInt
    state: dict[str, Any]


class ResumableFile:
    """The file `OUT.part` that becomes OUT, and the record of its whole lines in `OUT.part.json`.

    Each addition is forced to the disk before the record counts it. After an interruption the counted bytes are
    whole lines, and the bytes behind them are cut off. Work that fails before its first addition leaves no file.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self._journal = out.with_name(out.name + ".part.json")
        self._bytes = 0
        self._is_empty = False

    @contextmanager
    def begin(self, settings: dict[str, Any], *, resume: bool) -> Iterator[dict[str, Any]]:
        """Lock the file; yields the state that was recorded last, or {} for a new file.

        Args:
            settings: how the file is made; only work with the same settings is resumed.
            resume: continue an unfinished file where there is one.

        Raises:
            RegardError: the file is there already, another process is making it, or `OUT.part` was made by
                another program.
            ConfigurationError: it was begun and `resume` is False, or it was begun with other settings.
        """
        self._begun(resume)
        with self._held():
            # Checked again: another process may have begun or finished it before the lock was free.
            begun = self._begun(resume)
            self._check_own(begun)
            record = self._read(settings) if begun else None
            self._bytes = record.bytes if record else 0
            self._is_empty = not begun
            try:
                self._cut()
                if not begun:
                    self._record(settings, {})
                yield record.state if record else {}
            except BaseException:
                if self._is_empty:
                    self.drop()
                raise

    def add(self, lines: str, settings: dict[str, Any], state: dict[str, Any]) -> None:
        """Add whole lines, then record where the work stands."""
        content = lines.encode()
        with raised_as(RegardError, f"{self.part}: cannot be written"):
            # A removed file raises here and is not made again.
            if self.part.stat().st_size != self._bytes:
                raise RegardError(
                    f"{self.part}: another process has changed it: remove it and begin again"
                )
            files.append(self.part, content)
            files.force(self.part)
        self._bytes += len(content)
        self._record(settings, state)
        self._is_empty = False

    def finish(self) -> None:
        """Rename the file to its final name."""
        with raised_as(RegardError, f"{self.out}: cannot be written"):
            os.replace(self.part, self.out)
            files.sync_folder(self.out.parent)
            self._journal.unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove the file and its record."""
        for path in (self.part, self._journal):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _begun(self, resume: bool) -> bool:
        """Whether there is an unfinished file to resume."""
        if os.path.lexists(self.out):
            raise RegardError(f"{self.out}: is there already: remove it, or choose another name")
        begun = self._journal.exists() and self.part.exists()
        if begun and not resume:
            raise ConfigurationError(
                f"{self.out}: was begun and not finished: add --resume to go on, or remove {self.part}"
            )
        return begun

    @contextmanager
    def _held(self) -> Iterator[None]:
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

    def _check_own(self, begun: bool) -> None:
        """Refuse an `OUT.part` that another program made."""
        if not os.path.lexists(self.part):
            return
        is_file = self.part.is_file() and not self.part.is_symlink()
        if not is_file or (self.part.stat().st_size and not begun):
            raise RegardError(
                f"{self.part}: is there already, and no unfinished table: remove it, or choose another name"
            )

    def _cut(self) -> None:
        """Cut off bytes that were never counted; make the file where there is none."""
        with (
            raised_as(RegardError, f"{self.part}: cannot be written"),
            self.part.open("ab") as file,
        ):
            if file.tell() < self._bytes:
                raise DataError(
                    f"{self.part}: is shorter than {self._journal.name} says: remove both and begin again"
                )
            file.truncate(self._bytes)

    def _record(self, settings: dict[str, Any], state: dict[str, Any]) -> None:
        record = _Record(settings=settings, bytes=self._bytes, state=state)
        with raised_as(RegardError, f"{self._journal}: cannot be written"):
            files.write(self._journal, (record.model_dump_json(indent=1) + "\n").encode())

    def _read(self, settings: dict[str, Any]) -> _Record:
        with raised_as(DataError, f"{self._journal}: cannot be read"):
            content = self._journal.read_bytes()
        try:
            record = _Record.model_validate_json(content, strict=True)
            if record.version != VERSION:
                raise ValueError(f"format {record.version}, this program reads format {VERSION}")
        except ValueError as fault:
            raise DataError(f"{self._journal}: corrupted or truncated: {one_line(fault)}") from None
        old = record.settings
        changed = [
            f"{name}: {old.get(name)!r} before, {settings.get(name)!r} asked for"
            for name in sorted(old.keys() | settings.keys())
            if old.get(name) != settings.get(name)
        ]
        if changed:
            raise ConfigurationError(
                f"{self.out}: was begun with other settings: {'; '.join(changed)[:500]}"
            )
        return record
