"""Kernels for sizes that are known.

Triton asks at each launch for the type of every argument and whether it is a multiple of 16, which takes longer than a
small kernel. A launch for one set of sizes asks once.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.triton.sizes import Tile

ALIGNED = 15  # bits of an address that are 0


class Launch:
    """A kernel with its constants, for tensors of one dtype each and whole numbers that stay the same.

    The kernel takes tensors first, then numbers, and constants last.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], tile: Tile, **constants: Any) -> None:
        self._kernel, self._grid = kernel, (*grid, 1, 1)[:3]
        self._options = {"num_warps": tile.warps, "num_stages": tile.stages}
        constants |= {"OUTER": tile.outer, "INNER": tile.inner}
        names = kernel.arg_names
        self._constants = {name: constants[name] for name in names if name in constants}
        self._compiled: Any = None  # for tensors whose addresses are aligned

    def __call__(self, tensors: tuple[Tensor, ...], *numbers: float) -> None:
        addresses = 0
        for tensor in tensors:
            addresses |= tensor.data_ptr()
        is_aligned = addresses & ALIGNED == 0
        if self._compiled is not None and is_aligned:
            self._compiled[self._grid](*tensors, *numbers, *self._constants.values())
            return
        launch = self._kernel[self._grid]
        compiled = launch(*tensors, *numbers, **self._constants, **self._options)
        if is_aligned:
            self._compiled = compiled  # None where kernels are interpreted


@lru_cache(maxsize=512)
def launch_of(
    kernel: Any,
    grid: tuple[int, ...],
    tile: Tile,
    device: torch.device,
    numbers: tuple[int, ...],
    **constants: Any,
) -> Launch:
    """The launch for these whole numbers, on a device."""
    return Launch(kernel, grid, tile, **constants)
