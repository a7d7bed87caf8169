"""Rotations of queries and keys by angles that grow with their place."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.constants import check_number, whole
from regard.attention.shapes import ShapeError

Pairing = Literal["halves", "interleaved"]


def rotate(
    x: Float[Tensor, "*batch length d_head"],
    places: Int[Tensor, "*#batch length"],
    *,
    base: float = 10000.0,
    width: int | None = None,
    pairing: Pairing = "halves",
) -> Float[Tensor, "*batch length d_head"]:
    """Turn each pair of channels of the vector at place t by the angle t times the pair's frequency.

    ``(a, b) -> (a cos(t w_i) - b sin(t w_i), a sin(t w_i) + b cos(t w_i)),  w_i = base^(-2i / width)``

    A turned query times a turned key depends on the distance between their places alone, and lengths stay.

    RoFormer (Su et al. 2021, arXiv 2104.09864, equation 34). The paper pairs neighbours
    (``"interleaved"``); GPT-NeoX, and LLaMA at Hugging Face, pair channel i with channel
    i + width / 2 (``"halves"``). One is the other with the rows of both projections permuted.

    Args:
        x: Queries or keys.
        places: Where each of them stands; they may begin at any place, if both sides' do.
        base: Ratio of the longest wavelength to the shortest, nearly; more reaches further.
        width: Number of channels that turn, counted from the first; all by default.
        pairing: Which channels are a pair.

    Returns:
        As many vectors, in the precision given; angles are worked out in float64.

    Raises:
        ShapeError: If the width is odd or larger than the number of channels, or places and vectors differ in number.
        ValueError: If the base or the pairing is unknown, or the vectors hold whole numbers.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> rotate(x, torch.tensor([0, 1]))
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """
    if x.dim() < 2 or not places.dim() or places.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"vectors have shape {tuple(x.shape)}, places {tuple(places.shape)}: "
            "pass [..., length, width] and [..., length]"
        )
    if not x.is_floating_point():
        raise ValueError(f"vectors are {x.dtype}: pass floating point")
    width = _turning(x.shape[-1], base, width, pairing)
    frequency = base ** (
        -torch.arange(0, width, 2, dtype=torch.float64, device=places.device) / width
    )
    angle = places.unsqueeze(-1) * frequency
    precise = torch.promote_types(x.dtype, torch.float32)
    cosine, sine = (table.to(x.device, precise) for table in (angle.cos(), angle.sin()))
    turning, staying = x[..., :width], x[..., width:]
    if pairing == "halves":
        a, b = turning.chunk(2, -1)
        turned = torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)
    else:
        a, b = turning.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)
    return torch.cat([turned.to(x.dtype), staying], -1) if staying.shape[-1] else turned.to(x.dtype)


@dataclass(frozen=True)
class Rotary:
    """`rotate` with its settings, of steps that follow one another.

    Args:
        base, width, pairing: Those of `rotate`.

    Example:
        >>> turn = Rotary()
        >>> query, key = torch.randn(5, 8), torch.randn(5, 8)
        >>> here, there = turn(query) @ turn(key).mT, turn(query, 100) @ turn(key, 100).mT
        >>> torch.allclose(here, there, atol=1e-5)
        True
    """

    base: float = 10000.0
    width: int | None = None
    pairing: Pairing = "halves"

    def __post_init__(self) -> None:
        check_number("base", self.base, "for a learned one, turn by `rotate`")
        if self.width is not None:
            whole("width", self.width, 0)
        if self.pairing not in ("halves", "interleaved"):
            raise ValueError(f'pairing is {self.pairing!r}: pass "halves" or "interleaved"')

    def __call__(
        self, x: Float[Tensor, "*batch length d_head"], start: int = 0
    ) -> Float[Tensor, "*batch length d_head"]:
        """The vectors of places ``start`` to ``start + length - 1``, turned.

        Raises:
            ShapeError: See `rotate`.
        """
        steps = x.shape[-2] if x.dim() > 1 else 0  # of a single vector, which `rotate` refuses
        # On the processor, which has the float64 of the angles whatever device the vectors are on.
        places = torch.arange(start, start + steps, device="cpu")
        return rotate(x, places, base=self.base, width=self.width, pairing=self.pairing)

    def check(self, d_head: int) -> None:
        """Raises what `rotate` raises for vectors of this width."""
        _turning(d_head, self.base, self.width, self.pairing)


def _turning(d_head: int, base: float, width: int | None, pairing: str) -> int:
    """The number of channels that turn."""
    if pairing not in ("halves", "interleaved"):
        raise ValueError(f'pairing is {pairing!r}: pass "halves" or "interleaved"')
    if not 0 < base < float("inf"):
        raise ValueError(f"base is {base}: pass a finite number above 0")
    width = d_head if width is None else width
    if width % 2 or not 0 <= width <= d_head:
        raise ShapeError(
            f"{width} of {d_head} channels are to turn in pairs: "
            "pass an even width, no more than there are channels"
        )
    return width
