"""A look in a notebook: small pictures of its map, written with nothing but the standard library.

`regard.viewing` draws figures, with words or into files.
"""

import zlib
from base64 import b64encode
from html import escape
from itertools import product
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.looks.statistics import Statistics

SIDE, SHOWN = 48, 8  # cells of a side, and batch entries, in a notebook
QUICK = 1 << 26  # numbers up to which a notebook may draw without having been asked
ABOVE, BELOW = (23, 78, 128), (194, 65, 12)  # the colours of weights above 0 and below it
GREY = (128, 128, 128, 96)  # the colour of masked cells, and how opaque it is


def html(look: Statistics) -> str:
    """Caption and shape of a look and coarse maps of its first batch entries, if that is quick."""
    *batch, queries, keys = look.shape
    title = f"<div>{escape(look.caption.title)}</div>" if look.caption.title else ""
    caption = f"{title}<div><code>{escape(repr(look))}</code></div>"
    if not prod(look.shape):
        return caption
    if prod(look.shape) * look._cost() > QUICK:
        return f"{caption}<div>large: ask for .map(height, width) or .plot()</div>"
    cells = look.map(min(SIDE, queries), min(SIDE, keys))
    rows, columns = (torch.arange(length, device=look.device) for length in (queries, keys))
    unreadable = masked(look, cells, rows, columns)
    note = "; grey: masked, may not be read" if bool(unreadable.any()) else ""
    cells, unreadable = (plane.reshape(-1, *cells.shape[-2:]) for plane in (cells, unreadable))
    darkest = float(cells.abs().nan_to_num(posinf=0.0).amax()) or 1.0
    places = list(product(*map(range, batch)))[:SHOWN]
    pictures = "".join(
        f'<figure style="display:inline-block;margin:4px"><img alt="weights, queries down, keys'
        f' across" src="{_address(weights / darkest, grey)}" style="width:128px;height:128px;'
        f'image-rendering:pixelated;border:1px solid #8888"><figcaption>{look.caption.of(place)}'
        "</figcaption></figure>"
        for weights, grey, place in zip(cells, unreadable, places, strict=False)
    )
    hidden = prod(batch) - len(places)
    more = f"; {hidden} more" if hidden else ""
    legend = f"<div>queries down, keys across; the darkest is {darkest:.2g}{note}{more}</div>"
    return f"{caption}{pictures}{legend}"


def masked(
    look: Statistics,
    cells: Float[Tensor, "*batch height width"],
    rows: Int[Tensor, " rows"],
    columns: Int[Tensor, " columns"],
) -> Bool[Tensor, "*batch height width"]:
    """Whether a cell of the map of these rows and columns is 0, and the keys at its corners are masked."""
    none = torch.zeros_like(cells, dtype=torch.bool)
    if not (len(rows) and len(columns)):
        return none
    *batch, height, width = cells.shape
    readable = look.readable(
        rows[_corners(len(rows), height)], columns[_corners(len(columns), width)]
    )
    if readable is None:
        return none
    return (cells == 0) & ~readable.reshape(*batch, 2, height, 2, width).any(-2).any(-3)


def _corners(length: int, count: int) -> Tensor:
    """The first position of each bin, then the last one of each."""
    edges = torch.arange(count + 1, device="cpu") * length // count
    return torch.cat([edges[:-1], torch.maximum(edges[:-1], edges[1:] - 1)])


def _address(shares: Tensor, unreadable: Tensor) -> str:
    """Cells from -1 to 1 as an image within its address: a colour, the more the less transparent."""
    opacity = (shares.abs().nan_to_num(posinf=1.0).clamp(max=1.0) * 255).round()
    colours = torch.tensor([ABOVE, BELOW], device=shares.device)[(shares < 0).long()]
    pixels = torch.cat([colours, opacity.unsqueeze(-1)], -1).to(torch.uint8)
    pixels[unreadable] = pixels.new_tensor(GREY)
    return f"data:image/png;base64,{b64encode(_png(pixels.cpu())).decode()}"


def _png(pixels: Tensor) -> bytes:
    """(height, width, 4) bytes of red, green, blue and opacity (ISO/IEC 15948)."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    size = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 6, 0, 0, 0])
    bodies = [(b"IHDR", size), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    chunks = (
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
        for kind, body in bodies
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
