"""How many operations of torch a call takes: the same on every machine, where its time is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


def operations(call: Callable[[], Any]) -> int:
    """The number of operations that reach a device, with gradients those of the backward pass as well."""
    with _Counted() as counted:
        call()
    return counted.number


class _Counted(TorchDispatchMode):
    number = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))
