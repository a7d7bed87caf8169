"""Translated files, kept for a while in a folder that all processes of a server share."""

import secrets
import time
from contextlib import suppress
from pathlib import Path

from regard.errors import DataError, raised_as
from regard.files import write
from regard.serving.errors import Refused

KEPT = 600  # seconds that a file is kept
ROOM = 256 * 2**20  # bytes of all files


class Downloads:
    """Files under names that cannot be guessed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, content: bytes, ending: str) -> str:
        """Keep a file; returns its name.

        Raises:
            Refused: there is no room until old files are removed.
            DataError: the folder cannot be written.
        """
        with raised_as(DataError, "a translated file cannot be kept"):
            size = 0
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):  # another process has removed it
                    status = path.stat()
                    if time.time() - status.st_mtime > KEPT:
                        path.unlink()
                    else:
                        size += status.st_size
            if size + len(content) > ROOM:
                raise Refused(503, "too many translated files wait to be fetched: try again later")
            name = f"{secrets.token_urlsafe(16)}.{ending}"
            write(self._folder / name, content)
        return name

    def __getitem__(self, name: str) -> bytes:
        """The file of a name.

        Raises:
            Refused: there is none, or none any more.
        """
        stem, _, ending = name.partition(".")
        if stem.replace("-", "").replace("_", "").isalnum() and ending.isalnum():
            try:
                return (self._folder / name).read_bytes()
            except OSError:
                pass
        raise Refused(
            404, f"there is no such file, or no more: it is kept for {KEPT // 60} minutes"
        )
