"""checksums.json: the sha256 of the files of a folder, compared whenever one of them is read.

Files without an entry are not compared: folders of earlier versions list fewer files, or none.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from regard import files
from regard.errors import CheckpointError, CorruptedError, raised_as

T = TypeVar("T")
_SUMS = TypeAdapter(dict[str, str])
SUMS = "checksums.json"
_LARGEST_FILE = 2**20


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of(path: Path) -> str:
    with files.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sign(folder: Path, names: Collection[str]) -> None:
    """Write the checksums of files that were just written, and of no others."""
    write(folder / SUMS, {name: of(folder / name) for name in names})


def write(path: Path, sums: Mapping[str, str]) -> None:
    files.write(path, (json.dumps(dict(sorted(sums.items())), indent=1) + "\n").encode())


def check(folder: Path) -> None:
    """Compare every file that the checksums of a folder name, where it has any. Raises `CheckpointError`."""
    if (folder / SUMS).exists():
        for name, expected in read(folder, os.listdir(folder)).items():
            content(folder / name, expected)


def read(folder: Path, names: Collection[str]) -> dict[str, str]:
    """The checksums kept in a folder.

    Raises:
        CheckpointError: they cannot be read, or name a file that is not `names`.
    """
    sums = read_table(folder / SUMS)
    # One flipped bit in a name would otherwise leave the file of that name uncompared.
    for name in sums.keys() - set(names):
        raise CorruptedError(
            f"{folder / SUMS}: corrupted: it names {name!r}, which is no file of such a folder"
        )
    return sums


def read_table(path: Path) -> dict[str, str]:
    """Checksums by the names of their files. Raises `CheckpointError` where they cannot be read."""
    return parsed(_SUMS, content(path, None, _LARGEST_FILE), path, "a table of checksums")


def parsed(kind: TypeAdapter[T], content: bytes, path: Path, expected: str) -> T:
    """The JSON of a file as a value of a type. Raises `CorruptedError` where it is something else."""
    try:
        return kind.validate_json(content, strict=True)
    except ValueError:
        raise CorruptedError(f"{path}: corrupted or truncated: expected {expected}") from None


def compare(content: bytes, expected: str | None, path: Path) -> None:
    """Raise `CorruptedError` unless the content of a file has the expected checksum; None expects nothing."""
    if expected is not None and (actual := sha256(content)) != expected:
        raise CorruptedError(
            f"{path}: corrupted or truncated: its sha256 is {actual[:12]}..., {SUMS} says {expected[:12]}..."
        )


def content(path: Path, expected: str | None, largest: int | None = None) -> bytes:
    """The bytes of a file, compared with its checksum.

    Raises:
        CheckpointError: it cannot be read, has more than `largest` bytes, or another checksum.
    """
    with raised_as(CheckpointError, f"{path}: cannot be read"):
        data = files.read(path, largest)
    compare(data, expected, path)
    return data
