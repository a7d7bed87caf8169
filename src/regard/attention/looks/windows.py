"""The positions that a caller names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

Window = range | slice | Tensor | Iterable[int] | None


def positions(window: Window, length: int, device: torch.device) -> Tensor:
    """The positions that a range, slice, tensor or sequence names; negative ones from the end."""
    if window is None:
        return torch.arange(length, device=device)
    if isinstance(window, slice):
        window = range(*window.indices(length))
    if isinstance(window, range):
        window = list(window)
    index = torch.as_tensor(
        window if isinstance(window, Tensor) else list(window), device=device
    ).long()
    if index.ndim != 1:
        raise IndexError(f"positions have {index.ndim} axes: pass one axis of them")
    if index.numel() and not (-length <= int(index.min()) and int(index.max()) < length):
        raise IndexError(
            f"positions run from {int(index.min())} to {int(index.max())}, of {length}"
        )
    return torch.where(index < 0, index + length, index)
