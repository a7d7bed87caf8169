"""Whether a search is served by compiled loops."""

from __future__ import annotations

import os
from functools import cache

import torch

from regard.loops import availability as loops

_wanted = True


def want(loops: bool) -> None:
    """Whether to load what compiles: that takes longer than a sentence or two do without."""
    global _wanted
    _wanted = loops


def serves(device: torch.device) -> bool:
    """On a processor, where the machine code can be kept: compiling takes longer than most texts."""
    return _wanted and device.type == "cpu" and loops.serve() and _kept()


@cache
def _kept() -> bool:
    from regard.loops import cache as kernels

    try:
        kernels.folder().mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it cannot be made, or this person has no home
        return False
    return os.access(kernels.folder(), os.W_OK)
