"""Where in a model a call is made: the modules that are running, innermost last.

Each thread and task has its own, so that watches in several of them do not meet. The hooks are
torch's global ones: hooks on a module would turn nn.TransformerEncoderLayer's fast path off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

PROJECTION = re.compile("linear|conv1d|dense", re.IGNORECASE)


@dataclass(slots=True)
class Frame:
    """A module that is running: how many attentions it computed, and what its projections read.

    `number` counts the calls of modules of its class by the module around it.
    """

    module: nn.Module
    number: int = 0
    attentions: int = 0
    read: set[Any] = field(default_factory=set)
    children: Counter[str] = field(default_factory=Counter)


class Listener(Protocol):
    """A watch, as the hooks and doors know it."""

    is_open: bool

    def entered(self, stack: tuple[Frame, ...], arguments: tuple[Any, ...]) -> None: ...

    def heard(self, stack: tuple[Frame, ...], told: Any) -> None: ...

    def suspected(self, stack: tuple[Frame, ...], weights: Any, axis: Any) -> None: ...


_stack: ContextVar[tuple[Frame, ...]] = ContextVar("stack", default=())
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
_silent: ContextVar[bool] = ContextVar("silent", default=False)


def listen(listener: Listener) -> None:
    _listeners.set((*(each for each in _listeners.get() if each.is_open), listener))


def leave(listener: Listener) -> None:
    """Where a watch ends elsewhere, as a generator's may, it stays listed but `is_open` no more."""
    _listeners.set(tuple(each for each in _listeners.get() if each is not listener))
    if not _listeners.get():
        _stack.set(())


def listening() -> bool:
    """Whether somebody wants to know of an attention that is computed now."""
    return bool(_stack.get()) and bool(_listeners.get()) and not _silent.get()


def tell(told: Any) -> None:
    """Tell everybody who listens of an attention; `told` makes its parts."""
    stack = _stack.get()
    for listener in _listeners.get():
        listener.heard(stack, told)
    stack[-1].attentions += 1


def suspect(weights: Any, axis: Any) -> None:
    """Report a softmax that is part of no known attention."""
    for listener in _listeners.get():
        listener.suspected(_stack.get(), weights, axis)


def reads_two() -> None:
    """The module that runs reads another sequence than its own."""
    if listening():
        _stack.get()[-1].read |= {"query", "key"}


@contextmanager
def silence() -> Iterator[None]:
    """What is computed within is part of an attention that is told of as a whole."""
    before = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(before)


def hooks() -> list[RemovableHandle]:
    """The hooks that follow which module runs; also when it fails."""
    return [
        register_module_forward_pre_hook(_enter),
        register_module_forward_hook(_exit, always_call=True),
    ]


def _enter(module: nn.Module, arguments: Any) -> None:
    if torch.compiler.is_compiling() or not _listeners.get():
        return
    stack = _stack.get()
    if stack and PROJECTION.search(type(module).__name__):
        _note(stack[-1], arguments)
    kind = type(module).__name__
    if stack:
        stack[-1].children[kind] += 1
    stack = (*stack, Frame(module, stack[-1].children[kind] if stack else 0))
    for listener in _listeners.get():
        listener.entered(stack, arguments)
    _stack.set(stack)


def _exit(module: nn.Module, arguments: Any, output: Any) -> None:
    if torch.compiler.is_compiling():
        return
    stack = _stack.get()
    for depth in range(len(stack) - 1, -1, -1):
        if stack[depth].module is module:
            _stack.set(stack[:depth])
            return


def _note(frame: Frame, arguments: Any) -> None:
    read = arguments[0] if isinstance(arguments, tuple) and arguments else None
    if isinstance(read, Tensor) and read.layout is torch.strided and not read.is_nested:
        try:
            frame.read.add((read.data_ptr(), tuple(read.shape)))
        except RuntimeError:  # a tensor of a transformation or a trace has no place in memory
            return
