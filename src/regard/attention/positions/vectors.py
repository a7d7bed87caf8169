"""Where a step stands in its sequence, as a vector to add to it."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.constants import whole
from regard.attention.shapes import ShapeError


def sinusoidal(
    length: int,
    width: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "length width"]:
    """Sines and cosines of wavelengths from 2 pi to 10000 times that.

    ``P[t, 2i] = sin(t / 10000^(2i / width)),  P[t, 2i + 1] = cos(t / 10000^(2i / width))``

    Attention Is All You Need (arXiv 1706.03762, section 3.5).

    Args:
        length: Number of positions, from 0.
        width: Width of the vectors; an odd one ends with a sine.
        device: Where they are put.
        dtype: Their precision, by default torch's; the angles are worked out in float64.

    Returns:
        One row for each position.

    Raises:
        ValueError: If ``length`` is negative or ``width`` below one.

    Example:
        >>> sinusoidal(2, 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if length < 0 or width < 1:
        raise ValueError(f"got length {length} and width {width}: pass at least 0 and at least 1")
    # On the processor, which has float64 whatever device the vectors are put on.
    position = torch.arange(length, dtype=torch.float64, device="cpu").unsqueeze(-1)
    even = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    angle = position * torch.exp(even * (-math.log(10000.0) / width))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :width]
    device = torch.get_default_device() if device is None else device
    return table.to(device=device, dtype=dtype or torch.get_default_dtype())


class Learned(nn.Module):
    """One trained vector for each position, up to a largest length.

    Convolutional Sequence to Sequence Learning (arXiv 1705.03122, section 3.1).

    Args:
        max_length: Number of positions there are vectors for.
        width: Width of the vectors.

    Raises:
        ValueError: If a size is below one.

    Example:
        >>> Learned(max_length=10, width=4)(3).shape
        torch.Size([3, 4])
    """

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        max_length, width = whole("max_length", max_length), whole("width", width)
        self.max_length = max_length
        self.weight = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "length width"]:
        """The vectors of positions ``start`` to ``start + length - 1``: a view of the weights.

        Raises:
            ShapeError: If there are no vectors for so many positions.
        """
        if start < 0 or length < 0 or start + length > self.max_length:
            raise ShapeError(
                f"positions {start} to {start + length - 1} are asked for, there are vectors for "
                f"0 to {self.max_length - 1}: shorten the sequence or raise max_length"
            )
        return self.weight[start : start + length]

    def extra_repr(self) -> str:
        return f"max_length={self.max_length}, width={self.weight.shape[-1]}"
