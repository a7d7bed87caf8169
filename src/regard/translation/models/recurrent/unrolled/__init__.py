"""A recurrence over all its steps as one operator, with gradients derived by hand."""

from .layers import unroll, unroll_reading
from .steps import Steps

__all__ = ["Steps", "unroll", "unroll_reading"]
