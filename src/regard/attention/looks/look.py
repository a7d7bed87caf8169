"""A look: what every query reads, computed when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.shapes import Shape

Window = range | slice | Tensor | Iterable[int] | None

BLOCK = 1 << 22  # scores held at a time when only some columns are wanted


class Look:
    """What the weights say, of shape (*batch, queries, keys). Nothing is computed until asked for.

    The weights are those before dropout.

    Example:
        >>> import torch, regard
        >>> look = regard.look(torch.zeros(2, 4), torch.zeros(5, 4))
        >>> look.shape
        (2, 5)
        >>> look.weights(rows=range(1), columns=slice(3))
        tensor([[0.2000, 0.2000, 0.2000]])
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._batch: Shape | None = None

    @property
    def shape(self) -> Shape:
        """(*batch, queries, keys)."""
        if self._batch is None:
            self._batch = self._request.batch()
        return (*self._batch, self._request.queries, self._request.keys)

    @property
    def device(self) -> torch.device:
        return self._request.frame.device

    def weights(
        self, rows: Window = None, columns: Window = None
    ) -> Float[Tensor, "*batch rows columns"]:
        """The weights, or any window of them.

        Args:
            rows: positions of queries: a range, a slice, a tensor of indices; None for all.
            columns: positions of keys, likewise. A row is normalised over every key all the same.
        """
        batch, queries, keys = self.shape[:-2], *self.shape[-2:]
        device = self.device
        across = None if columns is None else positions(columns, keys, device)
        if rows is None and across is None:
            return self._rows(None).expand(*batch, queries, keys)
        down = positions(rows, queries, device)
        if across is None:
            return self._rows(down).expand(*batch, len(down), keys)
        step = max(1, BLOCK // max(1, keys))
        blocks = [
            self._rows(block).expand(*batch, len(block), keys).index_select(-1, across)
            for block in down.split(step)
        ]
        return torch.cat(blocks, dim=-2)

    def _rows(self, rows: Tensor | None) -> Tensor:
        """The weights of these queries over every key; it broadcasts to (*batch, rows, keys)."""
        return weigh(self._request, rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"


def positions(window: Window, length: int, device: torch.device) -> Tensor:
    """The positions that a range, slice, tensor or sequence names; negative ones from the end."""
    if window is None:
        return torch.arange(length, device=device)
    if isinstance(window, slice):
        window = range(*window.indices(length))
    if isinstance(window, range):
        window = list(window)
    index = torch.as_tensor(
        window if isinstance(window, Tensor) else list(window), device=device
    ).long()
    if index.ndim != 1:
        raise IndexError(f"positions have {index.ndim} axes: pass one axis of them")
    if index.numel() and not (-length <= int(index.min()) and int(index.max()) < length):
        raise IndexError(
            f"positions run from {int(index.min())} to {int(index.max())}, of {length}"
        )
    return torch.where(index < 0, index + length, index)
