"""Keys as whole numbers of 8 bits with a scale for each key, and how far these are from the keys.

    key = scale * code + difference    -127 <= code <= 127

A row of codes is bytes: the scale as float32, then the codes, then zeros up to a multiple of four bytes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

HEAD = 4  # bytes of the scale
LEVELS = 127
SMALLEST = 1e-37  # of a scale: below it float32 loses digits
ROUNDING = 2.0**-17  # more than float32 loses in a length, relative to it

Rows = UInt8[Tensor, "rows bytes"]


def row_bytes(width: int) -> int:
    """The bytes of a row of codes."""
    return HEAD + -(-width // 4) * 4


def scales(rows: Rows) -> Float[Tensor, " rows"]:
    """The scale of every row, where it lies."""
    return rows.view(torch.float32)[:, 0]


def decode(rows: Rows, width: int, out: Tensor | None = None) -> Float[Tensor, "rows width"]:
    """The vectors that the codes stand for, in float32."""
    wide = torch.empty(len(rows), width) if out is None else out[: len(rows)]
    return wide.copy_(rows.view(torch.int8)[:, HEAD : HEAD + width]).mul_(
        scales(rows).unsqueeze(-1)
    )


class Coded(NamedTuple):
    """Keys as codes, and lengths that bound what the codes leave out; no length is too small.

    Args:
        rows: scales and codes.
        difference: the length of each key minus what its codes stand for.
        length: that of the key.
    """

    rows: Rows
    difference: Float[Tensor, " rows"]
    length: Float[Tensor, " rows"]


def encode(key: Float[Tensor, "rows width"]) -> Coded:
    """The codes of keys."""
    wide = key.detach().to("cpu", torch.float32)
    width = wide.shape[-1]
    scale = wide.abs().amax(-1, keepdim=True) / LEVELS
    is_tiny = scale < SMALLEST
    scaled = (wide / scale).masked_fill_(is_tiny, 0)  # in units of the scale nothing overflows
    codes = scaled.round()
    rows = torch.zeros(len(wide), row_bytes(width), dtype=torch.uint8)
    rows.view(torch.float32)[:, :1] = scale.masked_fill(is_tiny, 0)
    rows.view(torch.int8)[:, HEAD : HEAD + width] = codes
    scale, is_tiny = scale.squeeze(-1), is_tiny.squeeze(-1)
    tiny = LEVELS * SMALLEST * width
    length = (scale * torch.linalg.vector_norm(scaled, dim=-1) * (1 + ROUNDING)).masked_fill_(
        is_tiny, tiny
    )
    difference = scale * torch.linalg.vector_norm(scaled - codes, dim=-1) + ROUNDING * length
    return Coded(rows, difference.masked_fill_(is_tiny, tiny), length)


def lengths(vectors: Float[Tensor, "rows width"]) -> Float[Tensor, " rows"]:
    """The length of each vector; none is too small."""
    wide = vectors.detach().to("cpu", torch.float32)
    largest = wide.abs().amax(-1, keepdim=True).clamp_(min=SMALLEST)
    relative = torch.linalg.vector_norm(wide / largest, dim=-1)
    length: Tensor = largest.squeeze(-1) * relative * (1 + ROUNDING) + SMALLEST
    return length


def coded(key: Tensor, value: Tensor | None) -> tuple[Rows, Float[Tensor, "rows 3"]]:
    """The codes of keys, and the lengths of their differences, of themselves and of their values.

    The keys are their own values where there are none.
    """
    rows, difference, length = encode(key)
    of_values = length if value is None or value is key else lengths(value)
    return rows, torch.stack([difference, length, of_values], -1)
