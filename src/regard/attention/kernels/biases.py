"""Biases whose finite numbers stay finite when they are rounded, and divided by a temperature.

Masks are often written as a bias of the lowest number of a dtype. If it became -inf, a row of
such numbers alone would count as a row with nothing to read, or become NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROOM = 0.99  # of the largest number, so that a score may be added


def fitted(bias: Tensor, dtype: torch.dtype, temperature: float = 1.0) -> Tensor:
    """The bias, in float32 at least, within what the dtype holds after the division."""
    wide = bias.to(torch.promote_types(torch.promote_types(bias.dtype, dtype), torch.float32))
    most = torch.finfo(dtype).max
    if temperature >= 1 and torch.finfo(bias.dtype).max <= most:
        return wide
    limit = ROOM * most * min(1.0, temperature)
    # The number of one with the gradient of the other.
    clamped = wide.detach().clamp(-limit, limit) + (wide - wide.detach())
    return torch.where(bias.isinf(), wide, clamped)


def divided(bias: Tensor, dtype: torch.dtype, temperature: float) -> Tensor:
    """The bias over the temperature, rounded once."""
    if temperature == 1 and bias.dtype == dtype:
        return bias
    return (fitted(bias, dtype, temperature) / temperature).to(dtype)
