"""Files that are written whole or not at all, whatever fails on the way: a full disk, a kill, a power cut."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST
from pathlib import Path

__all__ = ["append", "replacing", "sync_folder", "write"]


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file as `replacing` does.

    Args:
        path: where the file goes; one that is there is replaced. A link is followed.
        content: the bytes of the file.

    Returns:
        The path.

    Raises:
        OSError: it cannot be written; the error names `path`, and what was there is untouched.
    """
    with replacing(path) as unfinished, open(unfinished, "xb") as file:
        file.write(content)
    return Path(path)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name to write a file under; at the end of the block that file takes the place of `path`.

    It is forced to the disk, then renamed, then the folder is forced to the disk: after a power cut there is
    the old file or the new one. When the block fails there is the old one, and nothing beside it.

    Args:
        path: where the file goes; one that is there is replaced. A link is followed.

    Raises:
        OSError: it cannot be written, or the block raised one; the error names `path`.
    """
    place = Path(os.path.realpath(path))
    unfinished = place.with_name(f".{secrets.token_hex(6)}.tmp")
    try:
        if place.exists() and not place.is_file():
            raise FileExistsError(EEXIST, "not a file that can be replaced")
        try:
            yield unfinished
            with open(unfinished, "rb") as file:
                os.fsync(file.fileno())
            os.replace(unfinished, place)
            sync_folder(place.parent)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as fault:
        if fault.errno is None:
            raise
        raise OSError(fault.errno, fault.strerror, str(path)) from fault


def append(path: str | os.PathLike[str], content: bytes) -> None:
    """Add to the end of a file, or leave it as it is: what a full disk took is taken back.

    Raises:
        OSError: it cannot be written.
    """
    with open(path, "ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
        except BaseException:
            with suppress(OSError):
                file.truncate(end)
            raise


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk, so that a rename outlives a power cut."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder may be open to writing and closed to reading
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
