"""Additive attention over one memory, a query a sentence and step, with room for all steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.attention.kernels.additive.cpu import step as loops
from regard.loops.threads import share

__all__ = ["Reading", "numbers"]

Array = np.ndarray[Any, Any]


def numbers(tensor: Tensor) -> Array:
    """The numbers of a contiguous tensor, in a row."""
    flat: Array = tensor.detach().view(-1).numpy()
    return flat


class Reading:
    """What is read and what of it was read, step by step forwards, then step by step backwards.

    Args:
        keys: W_k k.
        values: What is blended.
        readable: 1 where a key may be read.
        weight: w of the score.
        queries: Rows, steps x batch of them, in whose last columns W_q q of each step will be.
        weights: Where the weights go.
        contexts: Where the readings go.
        kept: `powers` and `near` of an earlier one of the same keys.
    """

    def __init__(
        self,
        keys: Float[Tensor, "batch source d_hidden"],
        values: Float[Tensor, "batch source d_value"],
        readable: UInt8[Tensor, "batch source"],
        weight: Float[Tensor, " d_hidden"],
        queries: Float[Tensor, "rows stride"],
        weights: Float[Tensor, "rows source"],
        contexts: Float[Tensor, "rows d_value"],
        *kept: Tensor,
    ) -> None:
        (batch, source, hidden), stride = keys.shape, queries.shape[-1]
        padded = -(-hidden // loops.ROUND) * loops.ROUND
        self.batch, self.padded = batch, padded
        self.keys, self.weights, self.contexts = keys, weights, contexts
        self.powers, self.near = kept or (
            keys.new_empty(batch * source * padded),
            torch.empty(batch, dtype=torch.uint8),
        )
        self._memory = loops.Memory(
            numbers(keys),
            numbers(self.powers),
            numbers(self.near),
            numbers(readable),
            numbers(values),
            numbers(weight.clone()),  # FSDP resizes a parameter's storage: not where numpy looks
            *(source, hidden, padded, values.shape[-1]),
            loops.CAPS[keys.dtype],
        )
        self._steps = loops.Steps(
            numbers(queries), stride, stride - hidden, numbers(weights), numbers(contexts)
        )
        if not kept:
            loops.remember(self._memory)

    def forward(self, step: int) -> None:
        """Read with the queries of a step."""
        self._share(partial(self._read, step))

    def start_back(
        self,
        query_slopes: Float[Tensor, "rows stride"],
        context_slopes: Float[Tensor, "rows d_value"],
    ) -> None:
        """Where gradients of readings will be found, and those of queries are to be written."""
        self._context_slopes = context_slopes
        self._key_slopes = torch.zeros_like(self.keys)
        self._weight_slopes = self.keys.new_zeros(self.batch, self.keys.shape[-1])
        self._slopes = loops.Slopes(
            *map(numbers, (query_slopes, context_slopes, self._key_slopes, self._weight_slopes))
        )

    def backward(self, step: int) -> None:
        """The gradients of a step's queries, those of its readings being complete."""
        self._share(partial(self._unread, step))

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of keys, values and w over all steps; dv_j = sum_i p_ij g_i is a product a sentence."""
        weights = self.weights.view(-1, self.batch, self.weights.shape[-1])
        slopes = self._context_slopes.view(-1, self.batch, self._context_slopes.shape[-1])
        values = torch.bmm(weights.permute(1, 2, 0), slopes.transpose(0, 1))
        return self._key_slopes, values, self._weight_slopes.sum(0)

    def _share(self, call: Any) -> None:
        share(call, 0, self.batch, self.powers.numel())

    def _read(self, step: int, first: int, last: int) -> None:
        loops.read(first, last, step, self._memory, self._steps, self._room())

    def _unread(self, step: int, first: int, last: int) -> None:
        loops.slopes(first, last, step, self._memory, self._steps, self._slopes, self._room())

    def _room(self) -> Array:
        return np.empty(2 * self.padded, self._memory.weight.dtype)
