"""Scores that fall with distance, at a slope of each head's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.positions.offsets import offsets

__all__ = ["Alibi", "alibi_slopes"]


def alibi_slopes(heads: int) -> Float[Tensor, " heads"]:
    """The slopes of heads: a geometric sequence that begins at its own ratio, 2^(-8 / heads).

    ``m_h = 2^(-8h / heads),  h = 1 ... heads``

    Train Short, Test Long (Press et al. 2021, arXiv 2108.12409, section 3). A number of heads that
    is no power of two gets the slopes of the power below, then every other slope of the power above, as in
    the authors' code.

    Raises:
        ValueError: If there are no heads.

    Example:
        >>> alibi_slopes(8)[:3], alibi_slopes(3)
        (tensor([0.5000, 0.2500, 0.1250]), tensor([0.0625, 0.0039, 0.2500]))
    """
    if heads < 1:
        raise ValueError(f"heads is {heads}: pass at least 1")
    power = 1 << (heads.bit_length() - 1)
    slopes = [*_geometric(power), *_geometric(2 * power)[::2]]
    return torch.tensor(slopes[:heads])


def _geometric(heads: int) -> list[float]:
    return [float(2 ** (-8 * h / heads)) for h in range(1, heads + 1)]


@dataclass(frozen=True)
class Alibi:
    """Attention with linear biases: distant keys score less. Nothing is learned.

    ``bias[h, i, j] = -m_h |i - j|``

    Train Short, Test Long (Press et al. 2021, arXiv 2108.12409, section 3), with `alibi_slopes`. There keys never come
    after the query. Here those that do fall off likewise, so that an encoder may have it; a decoder's mask hides them.

    Args:
        heads: Number of heads.

    Example:
        >>> Alibi(heads=8)(3, 3)[0]
        tensor([[-0.0000, -0.5000, -1.0000],
                [-0.5000, -0.0000, -0.5000],
                [-1.0000, -0.5000, -0.0000]])
    """

    heads: int

    def __call__(
        self,
        queries: int,
        keys: int,
        start: int = 0,
        *,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias of scores, for ``bias=`` of `regard.attend` over ``(*batch, heads, queries, keys)``.

        Args:
            queries: Number of queries.
            keys: Number of keys, from place 0 on.
            start: The place of the first query among the keys.
            device: Where it is put.
        """
        slopes = alibi_slopes(self.heads).to(device)[:, None, None]
        return -slopes * offsets(queries, keys, start, device).abs()
