"""The two matrix products of attention, and the precisions of these and of biases.

torch.matmul expands a batch axis of size 1 and copies it; einsum folds it into the rows instead.
"""

import torch
from jaxtyping import Float
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
BIAS_ROOM = 0.99  # of the largest number, so that a score may be added
GPU_ROOM = 0.5  # the fused kernels of a GPU multiply the sum by log2 e


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 where it is in half precision, else as it is."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def product_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of a product with this tensor, autocast included."""
    dtype = tensor.dtype
    kind = "cpu" if tensor.is_cpu else tensor.device.type  # of which torch makes new objects
    if dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return dtype
    return torch.get_autocast_dtype(kind)


def dots(
    query: Float[Tensor, "*#batch queries width"], key: Float[Tensor, "*#batch keys width"]
) -> Float[Tensor, "... queries keys"]:
    """Every query's dot product with every key."""
    if query.shape[:-2] == key.shape[:-2]:
        return query @ key.mT
    return torch.einsum("...qd,...kd->...qk", query, key)


def blend(
    weights: Float[Tensor, "*#batch queries keys"], value: Float[Tensor, "*#batch keys d_value"]
) -> Float[Tensor, "... queries d_value"]:
    """The values, summed with these weights."""
    if weights.shape[:-2] == value.shape[:-2]:
        return weights @ value
    return torch.einsum("...qk,...kd->...qd", weights, value)


def fitted(bias: Tensor, dtype: torch.dtype, temperature: float = 1.0) -> Tensor:
    """The bias, in float32 at least, within what the dtype holds after the division.

    Masks are often written as a bias of the lowest number of a dtype. If it became -inf, a row of
    such numbers alone would count as a row with nothing to read, or become NaN.
    """
    wide = bias.to(torch.promote_types(torch.promote_types(bias.dtype, dtype), torch.float32))
    largest = torch.finfo(dtype).max
    if bias.is_cpu and temperature >= 1 and torch.finfo(bias.dtype).max <= largest:
        return wide
    limit = (BIAS_ROOM if bias.is_cpu else GPU_ROOM) * largest * min(1.0, temperature)
    # The number of one with the gradient of the other.
    clamped = wide.detach().clamp(-limit, limit) + (wide - wide.detach())
    return torch.where(bias.isinf(), wide, clamped)


def divided(bias: Tensor, dtype: torch.dtype, temperature: float) -> Tensor:
    """The bias over the temperature, rounded once."""
    if temperature == 1 and bias.dtype == dtype and bias.is_cpu:
        return bias
    return (fitted(bias, dtype, temperature) / temperature).to(dtype)
