"""Compiled loops for additive attention on a processor."""

from regard.attention.kernels.cpu.kernel import Cpu

__all__ = ["Cpu"]
