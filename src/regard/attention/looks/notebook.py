"""A look in a notebook: small pictures of its map, written with nothing but the standard library.

Figures, and what has words around it or goes to a file, are the viewing wing's.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from html import escape
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.attention.looks.look import Look

SIDE, SHOWN = 48, 8  # cells of a side, and batch entries, in a notebook
QUICK = 1 << 26  # numbers up to which a notebook may draw without having been asked
ABOVE, BELOW = (23, 78, 128), (194, 65, 12)  # the colours of weights above 0 and below it


def html(look: Look) -> str:
    """The shape of a look and coarse maps of its first batch entries, where they take a moment."""
    *batch, queries, keys = look.shape
    caption = f"<div><code>{escape(repr(look))}</code></div>"
    if not prod(look.shape):
        return caption
    if prod(look.shape) * look._cost() > QUICK:
        return f"{caption}<div>large: ask for .map(height, width) or .plot()</div>"
    cells = look.map(min(SIDE, queries), min(SIDE, keys))
    cells = cells.reshape(-1, *cells.shape[-2:])
    most = float(cells.abs().nan_to_num(posinf=0.0).amax()) or 1.0
    places = list(product(*map(range, batch)))[:SHOWN]
    pictures = "".join(
        f'<figure style="display:inline-block;margin:4px"><img alt="weights, queries down, keys'
        f' across" src="{_address(own / most)}" style="width:128px;height:128px;'
        f'image-rendering:pixelated;border:1px solid #8888"><figcaption>{list(place) or ""}'
        "</figcaption></figure>"
        for own, place in zip(cells, places, strict=False)
    )
    hidden = prod(batch) - len(places)
    more = f"; {hidden} more" if hidden else ""
    said = f"<div>queries down, keys across; the darkest is {most:.2g}{more}</div>"
    return f"{caption}{pictures}{said}"


def _address(shares: Tensor) -> str:
    """Cells from -1 to 1 as an image within its address: a colour, the more the less transparent."""
    opacity = (shares.abs().nan_to_num(posinf=1.0).clamp(max=1.0) * 255).round()
    colours = torch.tensor([ABOVE, BELOW], device=shares.device)[(shares < 0).long()]
    pixels = torch.cat([colours, opacity.unsqueeze(-1)], -1).to(torch.uint8).cpu()
    return f"data:image/png;base64,{b64encode(_png(pixels)).decode()}"


def _png(pixels: Tensor) -> bytes:
    """(height, width, 4) bytes of red, green, blue and opacity (ISO/IEC 15948)."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    size = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 6, 0, 0, 0])
    parts = [(b"IHDR", size), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    chunks = (
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
        for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
