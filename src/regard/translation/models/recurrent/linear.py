"""Linear maps as the models here begin with them."""

from __future__ import annotations

from torch import nn

__all__ = ["new_linear"]


def new_linear(d_input: int, d_output: int, bias: bool = True) -> nn.Linear:
    """A linear map with Glorot's uniform weights and a bias of 0."""
    linear = nn.Linear(d_input, d_output, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
