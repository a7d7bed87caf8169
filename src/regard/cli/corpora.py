"""Where a corpus lies that was named on the command line."""

from __future__ import annotations

import os
from pathlib import Path


def found(path: Path) -> Path:
    """The file itself, or else the one of that name in the folder that REGARD_DATA names."""
    folder = os.environ.get("REGARD_DATA")
    if folder and not path.exists() and (Path(folder) / path).exists():
        return Path(folder) / path
    return path
