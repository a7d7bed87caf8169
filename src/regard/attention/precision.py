"""Half precisions, and the float32 that they are computed in."""

from __future__ import annotations

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 where it is in half precision, else as it is."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def product_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of a product with this tensor, autocast included."""
    kind = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return tensor.dtype
    return torch.get_autocast_dtype(kind)
