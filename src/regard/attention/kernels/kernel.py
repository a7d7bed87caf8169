"""The protocol of kernels."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from regard.attention.kernels.request import Request


@runtime_checkable
class Kernel(Protocol):
    """A way to compute a reading."""

    name: str

    def supports(self, request: Request, value: Tensor) -> str | None:
        """Why this kernel cannot serve the request, or None when it can."""

    def attend(self, request: Request, value: Tensor) -> Tensor:
        """The reading, (*batch, queries, d_value)."""
