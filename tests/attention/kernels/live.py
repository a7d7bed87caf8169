"""How many bytes of tensors are alive at once, counted as they are made and freed."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Live(TorchDispatchMode):
    """Inside, `peak` is the most bytes that storages made here have held at one time.

    It counts what torch allocates, the same on every machine; what an operation needs within
    itself it does not see.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        storages = {
            tensor.untyped_storage()._cdata
            for tensor in tree_iter((args, kwargs))
            if isinstance(tensor, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage(), storages)
        return result

    def _count(self, storage: torch.UntypedStorage, storages: set[int]) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name in storages or name in self._known:
            return
        self._known.add(name)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, name, size)

    def _free(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.now -= size
