"""Compiled loops for additive attention on a processor."""

from regard.attention.kernels.additive.cpu.kernel import Cpu

__all__ = ["Cpu"]
