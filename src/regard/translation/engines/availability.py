"""Whether compiled loops can search on a device."""

from __future__ import annotations

import os
from functools import cache

import torch

from regard.loops import availability


def why_not(device: torch.device) -> str | None:
    """Why compiled loops cannot search there; None where they can. It loads no loops.

    Their machine code must be kept: compiling takes longer than translating most texts.
    """
    if device.type != "cpu":
        return f"compiled loops run on processors, and this model is on {device}"
    if not availability.are_compiled():
        return "loops are not compiled: unset NUMBA_DISABLE_JIT"
    if not _can_be_kept():
        return (
            "the folder for compiled loops cannot be written: "
            "set XDG_CACHE_HOME to one that can be written"
        )
    return None


@cache
def _can_be_kept() -> bool:
    from regard.loops import cache as kernels

    try:
        kernels.folder().mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it cannot be made, or this person has no home
        return False
    return os.access(kernels.folder(), os.W_OK)
