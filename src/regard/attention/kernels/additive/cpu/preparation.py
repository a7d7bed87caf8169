"""Compiles all loops for additive scores in one precision. Their types depend on nothing else."""

import torch

from regard.attention.kernels.additive.cpu import calls
from regard.attention.kernels.additive.cpu.looks import PairScores
from regard.attention.kernels.additive.requests import Rules, sides_of


def compile_loops(precision: str) -> None:
    """Call each loop with one query and one key."""
    number = torch.ones(1, 1, dtype=getattr(torch, precision))
    sides = sides_of(number, number, number[0], number, None, Rules())
    rows = calls.forward(sides, 0.0, 1.0)
    calls.backward(sides, 0.0, 1.0, (*rows, number), False)
    PairScores(number, number, number[0], None, (), 0.0, 1.0).write(
        torch.empty_like(number), (), slice(0, 1), [range(1)]
    )
