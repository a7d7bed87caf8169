"""Checks that a run folder can be made and written to."""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import TrainingError


def check_writable(folder: Path) -> None:
    """Raises `TrainingError` where no run folder can be made or written to."""
    if folder.resolve() == Path(folder.resolve().anchor):
        raise TrainingError(
            f"{folder}: is the root of the file system: give --run a folder below it"
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
