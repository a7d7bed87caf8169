"""Whether compiled loops can run a search: on this device, and for layers without hooks."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch

from regard.loops import availability


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    weight: Tensor | None = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


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


def hooked(model: nn.Module) -> bool:
    """Whether the model or a module within has a hook or a `forward` of its own, or all modules have."""
    return modules_of_torch._has_any_global_hook() or any(
        within._forward_hooks
        or within._forward_pre_hooks
        or within._backward_hooks
        or within._backward_pre_hooks
        or "forward" in vars(within)
        for within in _every(model)
    )


def _every(model: nn.Module) -> list[nn.Module]:
    """A module and all within it, like `modules()`, in another order and a tenth of its time."""
    found: dict[nn.Module, None] = {}
    waiting = [model]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += [within for within in each._modules.values() if within is not None]
    return list(found)
