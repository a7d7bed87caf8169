"""Whether the numbers of a model's tensors can be read, and the memory that tensors hold."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regard.watching.errors import WatchError

PLAIN = (Tensor, nn.Parameter, nn.Buffer)
OVERRIDES = ("__torch_function__", "__torch_dispatch__")


def plain(name: str, tensor: Tensor) -> Tensor:
    """A tensor of torch's own class, with the same memory.

    Raises:
        WatchError: it has no numbers, or its class computes in its own way.
    """
    check(name, tensor)
    return tensor if type(tensor) in PLAIN else tensor.as_subclass(Tensor)


def check(name: str, tensor: Tensor) -> None:
    """Raise WatchError if the numbers of a tensor cannot be read."""
    if reason := objection(tensor):
        raise WatchError(f"its {name} is {reason}")


def objection(tensor: Tensor) -> str | None:
    """Why the numbers of a tensor cannot be read; None if they can.

    >>> objection(torch.ones(2, device="meta"))
    'a tensor of meta, which holds no numbers'
    """
    if tensor.is_nested:
        return "a nested tensor: pass a padded one and a mask"
    kind = type(tensor)
    subclasses = (each for each in kind.__mro__[: kind.__mro__.index(Tensor)])
    if any(name in vars(each) for each in subclasses for name in OVERRIDES if each not in PLAIN):
        return f"a {kind.__name__}, a tensor whose class computes in its own way"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}: pass its to_dense()"
    if tensor.is_quantized:
        return "a quantized tensor: pass its dequantize()"
    if tensor.numel() and not tensor.data_ptr():
        place = tensor.device if tensor.is_meta else "a transform"
        return f"a tensor of {place}, which holds no numbers"
    return None


def freed(tensor: Tensor) -> Tensor:
    """The tensor without its graph. No operator runs if it has none."""
    return tensor.detach() if tensor.requires_grad else tensor


def storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each storage of the tensors, by its address and size."""
    strided = (tensor.values() if tensor.is_nested else tensor for tensor in tensors)
    memories = (tensor.untyped_storage() for tensor in strided)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}
