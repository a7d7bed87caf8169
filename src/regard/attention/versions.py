"""Tensors that are read again later, by a backward pass or a look, and must not change until then.

torch counts the writes to each tensor, to all of its views, and to whatever else shares its memory.
The counts are kept beside the tensors, and compared before each tensor is read again. The tensors
stay in memory as long: a look, or the record of a backward pass, reads them anyway.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import RegardError

AFTER = "changed in place after the call"


class ChangedError(RegardError, RuntimeError):
    """A tensor was changed in place that a look or a backward pass still reads.

    Like torch's own error for saved tensors it is a RuntimeError, so one handler serves both.
    """


class Versions:
    """Tensors by name, and how often each had been written to when this was made.

    Tensors made under torch.inference_mode have no count and are not compared.
    """

    def __init__(self, tensors: Iterable[tuple[str, Tensor]] = ()) -> None:
        counts = ((name, entry, _version(entry)) for name, entry in tensors)
        self._counts = [count for count in counts if count[2] is not None]

    def check_look(self) -> None:
        """Raise a `ChangedError` where the weights of a look are not those of the call any more."""
        if change := self._first_change():
            name, tensor, _ = change
            raise ChangedError(
                f"{_described(name, tensor)}, or a tensor that shares its memory, was {AFTER}, so the"
                " weights may not be those of the call: ask the look before the change, or pass a copy,"
                " .clone(), to the call"
            )

    def check_gradients(self) -> None:
        """Raise a `ChangedError`, in torch's words, where gradients would not be those of the call."""
        if change := self._first_change():
            name, tensor, version = change
            raise ChangedError(
                "one of the variables needed for gradient computation has been modified by an"
                f" inplace operation: {_described(name, tensor)} is at version {tensor._version};"
                f" expected version {version} instead. The backward pass reads it again: change it"
                " after backward(), or pass a copy, .clone(), to the call"
            )

    def leave_out_changed(self) -> None:
        """Compare no more the tensors that have been written to: a function of the caller's did, just now."""
        if self._first_change():
            self._counts = [entry for entry in self._counts if entry[1]._version == entry[2]]

    def _first_change(self) -> tuple[str, Tensor, int | None] | None:
        if torch.compiler.is_compiling():
            return None
        return next((entry for entry in self._counts if entry[1]._version != entry[2]), None)


class Reads(TorchDispatchMode):
    """Inside, notes every tensor that an operation of torch reads and none has made here.

    So it finds what a function of the caller's uses, in a closure, an attribute or a global name.
    A tensor that the function itself writes to, such as a counter, is left out. Numbers that it
    takes out by ``tolist()`` or ``numpy()`` pass unseen.

    Args:
        names: tensors with a name.
    """

    def __init__(self, names: Iterable[tuple[str, Tensor | None]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {id(tensor): name for name, tensor in names}
        self._read: dict[int, tuple[Tensor, int | None]] = {}
        self._made: dict[int, Tensor] = {}  # kept, so that no id is given out again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _tensors((*args, *(kwargs or {}).values())):
            if id(tensor) not in self._made:
                self._read.setdefault(id(tensor), (tensor, _version(tensor)))
        result = func(*args, **(kwargs or {}))
        self._made.update((id(tensor), tensor) for tensor in _tensors(result))
        return result

    def versions(self) -> Versions:
        """The tensors that were read, with their present counts."""
        self._made.clear()
        return Versions(
            (self._names.get(id(tensor), ""), tensor)
            for tensor, version in self._read.values()
            if _version(tensor) == version
        )


def _tensors(nested: Any) -> Iterator[Tensor]:
    """The tensors of an operation's arguments or results: alone or in lists."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for entry in nested:
            yield from _tensors(entry)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _described(name: str, tensor: Tensor) -> str:
    """
    >>> _described("bias", torch.zeros(2))
    'bias (torch.float32 of shape [2])'
    """
    subject = name or "a tensor of the score, mask or normaliser"
    return f"{subject} ({tensor.dtype} of shape {list(tensor.shape)})"
