"""Where a corpus lies that was named on the command line."""

from __future__ import annotations

import os
from pathlib import Path


def found(path: Path) -> Path:
    """The file itself, or else the one of that name in the folder that REGARD_DATA names."""
    folder = os.environ.get("REGARD_DATA")
    # False, not an error, for names that no file can have: a whole sentence, for one.
    if folder and not os.path.exists(path) and os.path.exists(Path(folder) / path):
        return Path(folder) / path
    return path
