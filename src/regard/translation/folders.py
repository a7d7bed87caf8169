"""Folders of models that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard import files
from regard.errors import ModelError, raised_as


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
