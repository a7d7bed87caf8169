"""The masks that the arguments of a fused kernel imply, and the comparison of a call with its kernel's result.

A kernel such as flash attention is passed no matrix. It is causal or not, has a window, and leaves out padding or
reads texts that are packed into one row.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.masks import Mask, band, documents, packed
from regard.watching.captured import CapturedCall, Selection

CLOSE, CLOSE_IN_HALF = 1e-3, 1e-2  # of the norm of a reading


class Implied(NamedTuple):
    """The mask that the arguments of a kernel imply, as transformers passes them to flash attention."""

    queries: int
    keys: int
    is_causal: bool
    window: int | None = None  # how many keys a causal query reads, with its own
    readable: Bool[Tensor, "entries keys"] | None = None  # the tokens that are no padding
    lengths: tuple[Int[Tensor, "texts"], Int[Tensor, "texts"]] | None = None  # of packed texts

    def masks(self) -> Iterator[Mask | None]:
        """The masks to compare, the most special one first: not every kernel leaves out padding and packed texts.

        Positions are aligned at the end: the last query is at the last key.
        """
        positions = self._of_positions()
        for mask in self._of_texts():
            yield mask if positions is None else positions & mask
        if self.readable is None:
            yield positions

    def _of_positions(self) -> Mask | None:
        backwards = None if self.window is None or self.keys <= self.window else self.window - 1
        forwards = 0 if self.is_causal else backwards
        return None if backwards is forwards is None else band(backwards, forwards, align="end")

    def _of_texts(self) -> Iterator[Mask]:
        if self.readable is not None:
            keys = self.readable[:, : self.keys].int()
            queries = keys[:, -self.queries :] if self.queries > 1 else torch.ones_like(keys[:, :1])
            yield documents(queries, 2 * keys - 1)  # padding reads nothing
            yield documents(torch.ones_like(queries), keys)  # padding reads as the other tokens do
        elif self.lengths is not None:
            queries, keys = self.lengths
            if (int(queries.sum()), int(keys.sum())) == (self.queries, self.keys):
                yield packed(queries, keys)

    def rows(self) -> list[int]:
        """The queries that tell masks apart: at the ends, in the middle, and where a window or a text begins."""
        rows = {0, 1, self.queries // 2, self.queries - 1}
        if self.window is not None:
            full = self.window - (self.keys - self.queries)  # the row whose window leaves out a key
            rows |= {full - 1, full}
        if self.lengths is not None:
            end = int(self.lengths[0][0])
            rows |= {end - 1, end}
        return sorted(row for row in rows if 0 <= row < self.queries)


def packed_lengths(positions: Int[Tensor, "..."] | None, queries: int) -> Tensor | None:
    """The lengths of the texts in a row of these positions; None for a single text.

    >>> packed_lengths(torch.tensor([[0, 1, 2, 0, 1]]), 5)
    tensor([3, 2])
    """
    if positions is None or positions.numel() != queries or queries < 2:
        return None
    row = positions.reshape(-1)
    starts = (row == row.min()).nonzero().reshape(-1)
    if len(starts) < 2 or int(starts[0]):
        return None
    return torch.diff(starts, append=starts.new_tensor([queries]))


@torch.no_grad()
def difference(
    call: CapturedCall, result: Float[Tensor, "entries queries heads d_value"], rows: list[int]
) -> float:
    """The largest distance of a reading of these queries from that of the result, over its norm."""
    selection = Selection(rows=rows, values=True, dtype=torch.float32)
    expected = call.selected(selection).reading()
    computed = result.detach()[:, rows].transpose(1, 2).to(expected)
    if computed.shape != expected.shape:
        return torch.inf
    apart = (computed - expected).norm(dim=-1)
    size = torch.maximum(expected.norm(dim=-1), computed.norm(dim=-1))
    ratios = apart / size.clamp(min=torch.finfo(size.dtype).tiny)
    return float(ratios.nan_to_num(torch.inf).max()) if ratios.numel() else 0.0


def is_close(apart: float, *computed: Tensor) -> bool:
    """Whether a difference is one of rounding in the precision of these tensors."""
    half = any(each.element_size() < 4 for each in computed)
    return apart <= (CLOSE_IN_HALF if half else CLOSE)
