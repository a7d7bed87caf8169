"""Queries that follow one another, each run of them read by a call of torch's fused attention over a run of keys.

So packed sentences, documents and causal masks with padding are read. Tensors are cut at once, and what the calls
return is joined at once: an operation of torch for each cut would take about as long as a call for a short sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.masks.tiles import Tile
from regard.attention.products import widen

fused_forward = torch._scaled_dot_product_flash_attention_for_cpu
fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Calls(NamedTuple):
    """The calls, in the order of their queries.

    Attributes:
        rows: how many queries each has.
        keys: the first of its keys, and how many there are.
        triangles: whether query i of the call reads its keys up to i, and not all of them.
        divide_keys: whether the keys of one call follow those of the call before, and no key is left out.
    """

    rows: list[int]
    keys: list[tuple[int, int]]
    triangles: list[bool]
    divide_keys: bool

    @classmethod
    def of(cls, tiles: Sequence[Tile], keys: int) -> Calls:
        """The calls for independent tiles of a mask over so many keys."""
        columns = [tile.columns for tile in tiles]
        stops = [0, *(each.stop for each in columns)]
        return cls(
            [len(tile.rows) for tile in tiles],
            [(each.start, len(each)) for each in columns],
            [tile.triangle for tile in tiles],
            stops == [*(each.start for each in columns), keys],
        )

    def of_queries(self, tensor: Tensor, axis: int = -2) -> Sequence[Tensor]:
        """The part of each call in a tensor with a row for each query."""
        return tensor.split_with_sizes(self.rows, axis)

    def of_keys(self, tensor: Tensor) -> Sequence[Tensor]:
        """The part of each call in a tensor with a row for each key."""
        if self.divide_keys:
            return tensor.split_with_sizes([count for _, count in self.keys], -2)
        return [tensor.narrow(-2, *run) for run in self.keys]

    def cut(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, bool]]:
        """The queries, keys and values of each call, and its triangle."""
        keys, values = self.of_keys(key), self.of_keys(value)
        return zip(self.of_queries(query), keys, values, self.triangles, strict=True)

    def total(self, gradients: tuple[Tensor, ...], keys: Tensor) -> Tensor:
        """The gradients of all keys, from those that each call returns for its keys."""
        if self.divide_keys:
            return torch.cat(gradients, -2)
        total = widen(torch.zeros_like(keys))
        for place, gradient in zip(self.of_keys(total), gradients, strict=True):
            place.add_(gradient)
        return total


def read_apart(
    calls: Calls, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The reading, and the logarithm of the sum of each row."""
    results = [
        fused_forward(rows, keys, values, is_causal=triangle, scale=scale)
        for rows, keys, values, triangle in calls.cut(query, key, value)
    ]
    readings, sums = zip(*results, strict=True)
    return torch.cat(readings, -2), torch.cat(sums, -1)


def gradients_apart(
    calls: Calls,
    upstream: Tensor,
    sides: Sequence[Tensor],
    reading: Tensor,
    sums: Tensor,
    scale: float,
) -> list[Tensor]:
    """The gradients of queries, keys and values."""
    query, key, value = sides
    of_rows = (calls.of_queries(upstream), calls.of_queries(reading), calls.of_queries(sums, -1))
    gradients = [
        fused_backward(above, *vectors, blend, total, 0.0, triangle, scale=scale)
        for (*vectors, triangle), above, blend, total in zip(
            calls.cut(query, key, value), *of_rows, strict=True
        )
    ]
    of_query, of_key, of_value = zip(*gradients, strict=True)
    return [torch.cat(of_query, -2), calls.total(of_key, key), calls.total(of_value, value)]
