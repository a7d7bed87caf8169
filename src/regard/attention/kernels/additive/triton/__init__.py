"""Additive attention on a GPU, without the scores or the hidden layer in memory."""

from regard.attention.kernels.additive.triton.kernel import Triton

__all__ = ["Triton"]
