"""Whether compiled loops may compute something: they read numbers where they lie in memory."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

OFF = "NUMBA_DISABLE_JIT"
TRACERS = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)


def serve(*tensors: Tensor) -> bool:
    """Whether loops may compute from these: compiled, nothing traced, and each with a memory of its own."""
    return are_compiled() and not transformed() and all(map(_is_plain, tensors))


def are_compiled() -> bool:
    """Whether loops are compiled: NUMBA_DISABLE_JIT leaves them to Python, which knows no vectors."""
    return os.environ.get(OFF, "0").strip() in ("", "0")


def transformed() -> bool:
    """Whether a compiler or transform looks on, so that no number can be asked for."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or any(torch._C._get_dispatch_mode(mode) is not None for mode in TRACERS)
    )


def _is_plain(tensor: Tensor) -> bool:
    """A subclass may hold no numbers, or others: a fake one, a shard."""
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
