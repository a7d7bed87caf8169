"""Kernels: the same equation, faster. Each says what it cannot serve, and why."""

from regard.attention.kernels.choose import KernelRefusedError, explain, kernel

__all__ = ["KernelRefusedError", "explain", "kernel"]
