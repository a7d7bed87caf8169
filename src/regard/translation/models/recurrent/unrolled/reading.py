"""What a decoder reads between two steps, and the gradients of that."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.kernels.cpu import step as loops
from regard.translation.models.recurrent.unrolled.threads import share

__all__ = ["Reading"]


def numbers(tensor: Tensor) -> np.ndarray:
    """The numbers of a contiguous tensor, in a row."""
    flat: np.ndarray = tensor.detach().view(-1).numpy()
    return flat


class Reading:
    """Additive attention over one memory, a query a sentence and step.

    Args:
        keys: W_k k, of shape (batch, source, d_hidden).
        values: What is blended.
        readable: 1 where a key may be read, (batch, source).
        weight: w of the score.
        queries: Rows in whose last d_hidden columns W_q q of each step will be written.
        weights, contexts: Rows where the answers go; (steps x batch, ...).
    """

    def __init__(
        self,
        keys: Float[Tensor, "batch source d_hidden"],
        values: Float[Tensor, "batch source d_memory"],
        readable: Int[Tensor, "batch source"],
        weight: Float[Tensor, " d_hidden"],
        queries: Float[Tensor, "rows stride"],
        weights: Float[Tensor, "rows source"],
        contexts: Float[Tensor, "rows d_memory"],
    ) -> None:
        (batch, source, hidden), width, stride = keys.shape, values.shape[-1], queries.shape[-1]
        padded = -(-hidden // loops.ROUND) * loops.ROUND
        self.keys, self.values, self.weights, self.contexts = keys, values, weights, contexts
        self.batch, self.padded, self.work = batch, padded, batch * source * padded
        features = numbers(keys)
        self.memory = loops.Memory(
            features,
            numbers(keys.new_empty(batch * source * padded)),
            np.empty(batch, np.uint8),
            numbers(readable),
            numbers(values),
            numbers(weight),
            *(source, hidden, padded, width),
            loops.CAPS[features.dtype.type],
        )
        self.steps = loops.Steps(
            numbers(queries), stride, stride - hidden, numbers(weights), numbers(contexts)
        )
        loops.remember(self.memory)

    def forward(self, step: int) -> None:
        """Read with the queries of a step."""
        share(partial(self._read, step), 0, self.batch, self.work)

    def start_back(
        self, query_slopes: Float[Tensor, "rows stride"], context_slopes: Float[Tensor, "rows d"]
    ) -> None:
        """Where gradients of contexts will be found, and those of queries are to be written."""
        self.context_slopes = context_slopes
        self.key_slopes = torch.zeros_like(self.keys)
        self.weight_slopes = self.keys.new_zeros(self.batch, self.keys.shape[-1])
        self.slopes = loops.Slopes(
            *map(numbers, (query_slopes, context_slopes, self.key_slopes, self.weight_slopes))
        )

    def backward(self, step: int) -> None:
        """The gradients of a step, those of its contexts being complete."""
        share(partial(self._slopes, step), 0, self.batch, self.work)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of keys, values and w, over all steps: dv_j = sum_i p_ij g_i, a product for each sentence."""
        weights = self.weights.view(-1, self.batch, self.weights.shape[-1])
        slopes = self.context_slopes.view(-1, self.batch, self.context_slopes.shape[-1])
        values = torch.bmm(weights.permute(1, 2, 0), slopes.transpose(0, 1))
        return self.key_slopes, values, self.weight_slopes.sum(0)

    def _read(self, step: int, first: int, last: int) -> None:
        loops.read(first, last, step, self.memory, self.steps, self._room())

    def _slopes(self, step: int, first: int, last: int) -> None:
        loops.slopes(first, last, step, self.memory, self.steps, self.slopes, self._room())

    def _room(self) -> np.ndarray:
        return np.empty(2 * self.padded, self.memory.weight.dtype)
