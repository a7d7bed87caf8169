"""Whole layers through the operator, where it can compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.choose import pinned
from regard.attention.scores import Additive
from regard.attention.scores.prepare import is_additive
from regard.loops import availability as loops
from regard.translation.models.hooks import hooked
from regard.translation.models.recurrent.attention import CrossAttention, OneAttention
from regard.translation.models.recurrent.cells import Cell, CellState, LSTMCell
from regard.translation.models.recurrent.source import Source
from regard.translation.models.recurrent.unrolled.steps import Steps

__all__ = ["serves", "unroll", "unroll_reading"]


def serves(given: Tensor) -> bool:
    """Whether the loops can compute this: float32 or float64 of a processor, and nothing traced."""
    return (
        loops.serve(given)
        and given.is_cpu
        and given.dtype in (torch.float32, torch.float64)
        and given.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )


def unroll(
    cell: Cell, given: Float[Tensor, "rows gates"], steps: Steps, first: CellState = ()
) -> CellState | None:
    """The states (and memories) of a cell after every row, or None where the loops do not serve.

    Args:
        cell: One that reads no feed.
        given: What `cell.project` made of the inputs.
        steps: Which rows follow on which.
        first: The state before the first step; nothing for 0.
    """
    if not serves(given) or hooked(cell):
        return None
    back = cell.state_projection
    parts: CellState = _operator(cell, steps, given, back.weight, back.bias, *(None,) * 5, *first)
    return parts


def unroll_reading(
    layers: Sequence[Cell],
    attention: CrossAttention | None,
    given: Float[Tensor, "target batch gates"],
    source: Source,
) -> tuple[Float[Tensor, "target batch d_state"], Float[Tensor, "target batch d_memory"]] | None:
    """The states after each step of Bahdanau's decoder and the contexts read before it.

    None where the loops do not serve: they know one layer and one additive score. W_q and the
    cell's W are applied to the same state, so they are one matrix here.
    """
    if not (
        serves(given)
        and len(layers) == 1
        and isinstance(attention, OneAttention)
        and type(attention.score) is Additive
        and is_additive(attention.score)
        and isinstance(source.keys, Tensor)
        and source.keys.numel()
        and pinned() in (None, "cpu")
        and not hooked(*layers, attention)
    ):
        return None
    score, (cell,), (batch, length) = attention.score, layers, source.states.shape[:2]
    back, feed = cell.state_projection, cell.feed_projection
    bias = given.new_zeros(score.d_hidden) if score.bias is None else score.bias
    readable = torch.ones(batch, length, dtype=torch.uint8)
    if source.readable is not None:
        readable = source.readable[:, 0].to(torch.uint8)
    states, *_, contexts = _operator(
        cell,
        Steps.forwards([batch] * len(given)),
        given.flatten(0, 1),
        torch.cat([back.weight, score.query_weight]),
        torch.cat([back.bias, bias]),
        None if feed is None else feed.weight,
        source.keys,
        source.states,
        readable,
        score.weight,
        *source.first[0],
    )
    return states.view(-1, batch, cell.d_state), contexts.view(-1, batch, source.states.shape[2])


def _operator(cell: Cell, steps: Steps, *tensors: Tensor | None) -> Any:
    from regard.translation.models.recurrent.unrolled.operator import Unrolled  # loads numba

    name = "lstm" if isinstance(cell, LSTMCell) else "gru"
    laid_out = (None if tensor is None else tensor.contiguous() for tensor in tensors)
    return Unrolled.apply(name, steps, *laid_out)  # type: ignore[no-untyped-call]
