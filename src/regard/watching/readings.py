"""The outputs of heads: all they read, by source token, all they add to the stream, and the norms of these."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.heads import MultiHeadAttention
from regard.attention.looks.windows import Window, positions
from regard.watching.captured import CapturedCall, Selection
from regard.watching.errors import WatchError

CLOSE, CLOSE_IN_HALF = 1e-3, 3e-2  # relative to the largest number
NO_PROJECTION = "no linear layer reads the output of its heads as it is"


class Projected(NamedTuple):
    """The layer that reads the output of the heads, and the last row of what it read."""

    module: nn.Module
    row: Tensor | None = None  # (..., heads * d_value); None where the layer is known by its name


class HeadProjection(NamedTuple):
    """The output projection, by head: their sum and the bias are the output of the attention."""

    weight: Float[Tensor, "heads d_value d_output"]
    bias: Float[Tensor, "d_output"] | None


def output_layer(module: nn.Module, within: str = "") -> nn.Module | None:
    """The output projection of attentions of torch and of ours, which do not call it as a module."""
    module = module.get_submodule(within)
    if isinstance(module, nn.MultiheadAttention):
        return module.out_proj
    return module.output_projection if isinstance(module, MultiHeadAttention) else None


@dataclass(frozen=True, eq=False)
class Readings:
    """What the heads of an attention read and add. Made by `Seen.readings`.

    Attributes:
        projection: the output projection; None where it is unknown.
        objection: the reason why it is unknown, or None.
    """

    call: CapturedCall
    projection: HeadProjection | None
    objection: str | None

    def heads(self) -> Float[Tensor, "*batch heads queries d_value"]:
        """The output of each head before the output projection: the sum of weight x value."""
        return self.call.reading()

    def outputs(self) -> Float[Tensor, "*batch heads queries d_output"]:
        """What each head adds to the output of the attention, whose bias belongs to no head.

        Raises:
            WatchError: the output projection is unknown.
        """
        return self.heads() @ self._known_projection().weight

    def by_key(self, rows: Window = None) -> Float[Tensor, "*batch heads rows keys d_output"]:
        """What each head adds for each key: weight x value x output projection.

        Args:
            rows: positions of queries, as for `Look.weights`; the result holds rows x keys vectors.

        Raises:
            WatchError: the output projection is unknown.
        """
        device = self.call.query.device
        places = positions(rows, self.call.query.shape[-2], device)
        weights = self.call.look().weights(rows=places)
        values = self.call.values() @ self._known_projection().weight
        return weights.unsqueeze(-1) * values.unsqueeze(-3)

    def norms(self) -> Float[Tensor, "*batch heads keys"]:
        """The norm of value x output projection of each key; of the value alone where the projection is unknown."""
        values = self.call.values()
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        if self.projection is not None:
            # W = R' Q' with Q orthonormal, so |v W| = |v R'|: vectors of d_value numbers, not d_output.
            weight = self.projection.weight.to(values.dtype)
            values = values @ torch.linalg.qr(weight.mT, mode="r").R.mT
        norms: Tensor = values.norm(dim=-1)
        return norms

    def _known_projection(self) -> HeadProjection:
        if self.projection is None:
            raise WatchError(f"its output projection is unknown: {self.objection}")
        return self.projection


def readings(
    call: CapturedCall, projected: Projected | None, heads: tuple[int, ...] | None
) -> Readings:
    """The readings of a call, whose heads are these of all that there are.

    Raises:
        WatchError: the values were not kept.
    """
    call.values()
    projection = NO_PROJECTION if projected is None else _by_head(call, projected, heads)
    if isinstance(projection, str):
        return Readings(call, None, projection)
    return Readings(call, projection, None)


@torch.no_grad()
def _by_head(
    call: CapturedCall, projected: Projected, heads: tuple[int, ...] | None
) -> HeadProjection | str:
    """The projection by head, or the reason why it is none of these heads."""
    module, width = projected.module, call.values().shape[-1]
    kind = type(module)
    if kind.__module__ == "transformers.pytorch_utils" and kind.__name__ == "Conv1D":
        weight = module.weight
    elif kind.__module__.startswith("torch.nn.modules.") and hasattr(module, "weight"):
        weight = module.weight.mT
    else:
        return f"it is a {kind.__name__}, which may compute more than a product"
    assert isinstance(weight, Tensor)
    bias = module.bias if isinstance(module.bias, Tensor) else None
    count = call.query.shape[-3] if call.query.ndim > 2 else 1
    if len(weight) == width and projected.row is None:  # heads that are added, or a single one
        return HeadProjection(weight.expand(count, -1, -1), bias)
    if len(weight) % width or (heads is None and len(weight) != count * width):
        return NO_PROJECTION
    by_head = weight.unflatten(0, (-1, width))
    numbers = torch.tensor(range(count) if heads is None else heads, device=weight.device)
    numbers = numbers % len(by_head)
    if projected.row is not None:
        row = projected.row.unflatten(-1, (len(by_head), width))[
            ..., numbers.to(projected.row.device), :
        ]
        queries = call.query.shape[-2]
        whole_row = replace(call, witness=None).selected(Selection(rows=[queries - 1], values=True))
        reading = whole_row.reading().squeeze(-2)
        half = row.dtype in (torch.float16, torch.bfloat16)
        bound = (CLOSE_IN_HALF if half else CLOSE) * max(1e-6, float(row.abs().max()))
        if reading.shape != row.shape or not bool(
            ((reading - row.to(reading)).abs() <= bound).all()
        ):
            return NO_PROJECTION
    return HeadProjection(by_head[numbers], bias)
