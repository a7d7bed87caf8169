"""Dropout, with random bits enough for the weights and no more."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 1 << 16  # one weight is decided by 16 bits; a draw of 64 decides four


def drop(weights: Tensor, rate: float) -> Tensor:
    """The weights, each dropped at this rate, the others scaled up to keep the mean.

    Source: Srivastava et al. 2014. On a CPU torch's own draws one number a weight, which takes
    longer than the rest of the attention; there the rate is rounded to 1 in 65,536.
    """
    dropped = round(rate * LANES)
    if not weights.is_cpu or dropped == LANES or torch.compiler.is_compiling():
        return F.dropout(weights, rate)
    draws = torch.empty((weights.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    lanes = draws.view(torch.int16)[: weights.numel()].view(weights.shape)
    kept = (lanes >= dropped - LANES // 2).to(weights.dtype)
    return weights * kept.mul_(LANES / (LANES - dropped))
