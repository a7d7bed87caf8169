"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file beside its place, then rename it into it, so that no half file is ever seen.

    Args:
        path: where the file goes; one that is there is replaced. A link is followed.
        content: the bytes of the file.

    Returns:
        The path.

    Raises:
        OSError: the folder is missing or closed, or there is no space; the old file is untouched.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise FileExistsError(17, "not a file that can be replaced", str(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(2, "no such folder", str(place.parent))
    beside = place.with_name(f".{secrets.token_hex(6)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(path)) from fault
    finally:
        beside.unlink(missing_ok=True)
    return Path(path)
