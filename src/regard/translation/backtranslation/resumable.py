"""A long file made a part at a time: an interrupted work can be resumed, and half a line is never read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from regard import files
from regard.errors import ConfigurationError, DataError, RegardError

VERSION = 1


class ResumableFile:
    """The file `OUT.part` that becomes OUT, and beside it how far it is whole (`OUT.part.json`).

    Each addition is forced to the disk before it is counted: whatever stops the process, the counted bytes are
    whole lines, and what came after them is cut off when the work goes on. What fails before anything was added
    leaves nothing.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self._journal = out.with_name(out.name + ".part.json")
        self._bytes = 0
        self._is_empty = False

    @contextmanager
    def begin(self, settings: dict[str, Any], *, resume: bool) -> Iterator[dict[str, Any]]:
        """Hold the file; yields the state that was recorded last, or {} for a new file.

        Args:
            settings: how the file is made; only work with the same settings is resumed.
            resume: continue an unfinished file where there is one.

        Raises:
            RegardError: the file is there already, or another process is making it, or what is called
                `OUT.part` is none of ours.
            ConfigurationError: it was begun and is not to be resumed, or with other settings.
        """
        self._begun(resume)
        with self._held():
            # Only now: another process may have begun or finished it before the lock was free.
            begun = self._begun(resume)
            self._check_own(begun)
            record = self._read(settings) if begun else {}
            self._bytes = int(record.get("bytes", 0))
            self._is_empty = not begun
            try:
                self._cut()
                if not begun:
                    self._record(settings, {})
                yield record.get("state", {})
            except BaseException:
                if self._is_empty:
                    self.drop()
                raise

    def add(self, lines: str, settings: dict[str, Any], state: dict[str, Any]) -> None:
        """Add whole lines, then record where the work stands."""
        content = lines.encode()
        try:
            if (
                self.part.stat().st_size != self._bytes
            ):  # raises when it was removed: it is not made again
                raise RegardError(
                    f"{self.part}: another process has changed it: remove it and begin again"
                )
            files.append(self.part, content)
            files.force(self.part)
        except OSError as fault:
            raise RegardError(f"{self.part}: cannot be written: {fault.strerror}") from None
        self._bytes += len(content)
        self._record(settings, state)
        self._is_empty = False

    def finish(self) -> None:
        """Give the file its name."""
        try:
            os.replace(self.part, self.out)
            files.sync_folder(self.out.parent)
            self._journal.unlink(missing_ok=True)
        except OSError as fault:
            raise RegardError(f"{self.out}: cannot be written: {fault.strerror}") from None

    def drop(self) -> None:
        """Leave nothing."""
        for path in (self.part, self._journal):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _begun(self, resume: bool) -> bool:
        """Whether there is something to go on with, which is wanted."""
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
                stack.enter_context(files.locked(lock))
            except files.HeldError:
                raise RegardError(
                    f"{self.out}: another process is making it: wait for it, or choose another name"
                ) from None
            except OSError as fault:
                raise RegardError(f"{lock}: cannot be locked: {fault.strerror}") from None
            yield

    def _check_own(self, begun: bool) -> None:
        """Refuse a file of this name that was not begun here: its content is somebody else's."""
        if not os.path.lexists(self.part):
            return
        is_file = self.part.is_file() and not self.part.is_symlink()
        if not is_file or (self.part.stat().st_size and not begun):
            raise RegardError(
                f"{self.part}: is there already, and no unfinished table: remove it, or choose another name"
            )

    def _cut(self) -> None:
        """Cut off what was written but never counted; make the file where there is none."""
        try:
            with self.part.open("ab") as file:
                if file.tell() < self._bytes:
                    raise DataError(
                        f"{self.part}: is shorter than {self._journal.name} says: remove both and begin again"
                    )
                file.truncate(self._bytes)
        except OSError as fault:
            raise RegardError(f"{self.part}: cannot be written: {fault.strerror}") from None

    def _record(self, settings: dict[str, Any], state: dict[str, Any]) -> None:
        record = {"version": VERSION, "settings": settings, "bytes": self._bytes, "state": state}
        try:
            files.write(self._journal, (json.dumps(record, indent=1) + "\n").encode())
        except OSError as fault:
            raise RegardError(f"{self._journal}: cannot be written: {fault.strerror}") from None

    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        try:
            record = json.loads(self._journal.read_text(encoding="utf-8"))
            if record["version"] != VERSION:
                raise ValueError(f"format {record['version']}, this program reads format {VERSION}")
            old, state = record["settings"], record["state"]
            whole = isinstance(old, dict) and isinstance(state, dict)
            if not whole or type(record["bytes"]) is not int or record["bytes"] < 0:
                raise ValueError("no record of a file")
        except OSError as fault:
            raise DataError(f"{self._journal}: cannot be read: {fault.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            raise DataError(f"{self._journal}: corrupted or truncated: {fault}") from None
        changed = [
            f"{name}: {old.get(name)!r} before, {settings.get(name)!r} asked for"
            for name in sorted(old.keys() | settings.keys())
            if old.get(name) != settings.get(name)
        ]
        if changed:
            raise ConfigurationError(
                f"{self.out}: was begun with other settings: {'; '.join(changed)[:500]}"
            )
        return dict(record)
