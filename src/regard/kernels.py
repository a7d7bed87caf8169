"""Kernels: which one serves a request, and why the others do not."""

from regard.attention.kernels import *
from regard.attention.kernels import __all__ as __all__
