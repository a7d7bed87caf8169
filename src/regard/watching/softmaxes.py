"""Softmaxes outside of known attention functions, which suggest attention in the model's own code.

`torch.softmax` is replaced wherever a module holds it. F.softmax and nn.Softmax call
`Tensor.softmax`, which is replaced on the class. Both return the same result as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from regard.watching import running
from regard.watching.running import Stack


class SoftmaxReports:
    """`Tensor.softmax` reports its calls until `remove`."""

    def __init__(self) -> None:
        self._replaced = vars(Tensor).get("softmax")  # torch's own is inherited
        setattr(Tensor, "softmax", reporting(Tensor.softmax))  # noqa: B010

    def remove(self) -> None:
        if self._replaced is None:
            delattr(Tensor, "softmax")
        else:
            setattr(Tensor, "softmax", self._replaced)  # noqa: B010


def reporting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A softmax that reports its calls to the open watches."""

    @functools.wraps(original)
    def through(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if not torch.compiler.is_compiling() and running.is_observed():
            running.report_softmax(result, arguments[1] if len(arguments) > 1 else named.get("dim"))
        return result

    return through


def weighs_keys(weights: object, axis: object, stack: Stack) -> TypeGuard[Tensor]:
    """Whether the shapes are those of attention weights.

    Either they are (..., length, length), or the normalised axis is as long as a sequence (batch,
    length, width) that was the input of a projection in the module or in its parent.
    """
    if not (isinstance(weights, Tensor) and isinstance(axis, int)) or weights.ndim < 2:
        return False
    count, shape = weights.shape[axis], weights.shape
    if count < 2:
        return False
    if weights.ndim > 2 and axis % weights.ndim == weights.ndim - 1 and shape[-2] == count:
        return True
    read = [each[1] for frame in stack[-2:] for each in frame.read if isinstance(each, tuple)]
    return any(len(of) > 2 and (of[0], of[-2]) == (shape[0], count) for of in read)
