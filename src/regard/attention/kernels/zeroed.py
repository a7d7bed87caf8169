"""Requests whose queries or keys hold NaN or infinity: 0 times NaN is NaN.

So a weight of 0 does not remove them from a product, nor a gradient of 0 from other gradients.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.products import HALVES

FEW = (
    1 << 11
)  # numbers that are compared with themselves in less time than their largest is looked for


@dataclass(frozen=True)
class Zeroed:
    """A request with zeros in place of the queries and keys that hold NaN or infinity."""

    request: Request
    queries: Tensor  # which were replaced, (*batch, queries)
    keys: Tensor  # (*batch, keys)

    def spoilt(self, rows: Tensor | None = None) -> Tensor:
        """Which queries may read a replaced key, or were replaced and may read any key.

        The numbers of these rows are NaN in general, and not those of the zeros. The shape is
        (*batch, queries or rows, 1).
        """
        queries = self.queries if rows is None else self.queries.index_select(-1, rows)
        reads = self.keys.unsqueeze(-2) | queries.unsqueeze(-1)
        readable = self.request.readable(rows)
        return (reads if readable is None else readable & reads).any(-1, keepdim=True)


def zeroed(request: Request, value: Tensor | None = None) -> Zeroed | None:
    """The request with zeros where needed, keys of such values included; None where all is finite."""
    queries, keys = ~request.query.isfinite().all(-1), ~request.key.isfinite().all(-1)
    if value is not None:
        keys = keys | ~value.isfinite().all(-1)
    if not (queries.any() or keys.any()):
        return None
    zeros = replace(
        request,
        query=request.query.masked_fill(queries.unsqueeze(-1), 0.0),
        key=request.key.masked_fill(keys.unsqueeze(-1), 0.0),
    )
    zeros._readable = request._readable  # the same mask
    return Zeroed(zeros, queries, keys)


def finite(vectors: Tensor) -> Tensor:
    """The vectors, with zeros in place of those that hold NaN or infinity."""
    return vectors.masked_fill(~vectors.isfinite().all(-1, keepdim=True), 0.0)


def has_nan(reading: Tensor) -> bool:
    """Whether a reading holds NaN, as it does where a masked value is NaN or infinite."""
    if reading.numel() <= FEW:
        return not torch.equal(reading, reading)  # NaN differs from itself
    largest = (reading.detach() if reading.requires_grad else reading).max().item()
    return largest != largest


def are_finite(*tensors: Tensor) -> bool:
    """Whether the sum of all numbers is finite, which it is not if one of them is NaN or infinite.

    The sum of finite numbers may overflow as well: False does not prove that one is infinite.
    """
    total = 0.0
    for tensor in tensors:
        numbers = tensor.detach() if tensor.requires_grad else tensor
        wide = tensor.dtype in HALVES
        total += (numbers.sum(dtype=torch.float32) if wide else numbers.sum()).item()
    return total - total == 0.0
