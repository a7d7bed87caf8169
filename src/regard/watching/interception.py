"""Interception of the functions that compute attention, while a watch is open.

Each function is replaced, wherever a module holds it by name, by a wrapper that calls it and then
reports its arguments. No mode of torch is used: a TorchFunctionMode turns off the fast paths of
nn.MultiheadAttention and nn.TransformerEncoder, a TorchDispatchMode prevents the compilation of
flex_attention, and both cost time at every operator.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch import nn

from regard.watching import edited, functions, huggingface, running, softmaxes, torch_layers

Capture = Callable[..., Any]


@dataclass(frozen=True)
class InterceptedFunction:
    """A function of a module, and the function that captures its arguments."""

    module: str
    name: str
    capture: Capture | None  # None for a softmax
    when: Callable[..., bool] | None = None
    edited: Callable[..., Any] | None = (
        None  # the function with edited weights; None if it cannot be
    )

    def wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that replaces the original."""
        capture, when = self.capture, self.when
        if capture is None:
            return softmaxes.reporting(original)

        @functools.wraps(original)
        def through(*arguments: Any, **named: Any) -> Any:
            observed = not torch.compiler.is_compiling() and running.is_observed()
            if not observed or (when is not None and not when(*arguments, **named)):
                return original(*arguments, **named)
            edit = self.edited and running.edit()
            if self.edited and edit:
                result = self.edited(original, edit, *arguments, **named)
            else:
                with running.reports_suppressed():
                    result = original(*arguments, **named)
            running.report_attention(lambda: capture(*arguments, **named), edited=bool(edit))
            return result

        return through


FUNCTIONS = (
    InterceptedFunction(
        "torch.nn.functional",
        "scaled_dot_product_attention",
        functions.fused_call,
        edited=edited.fused,
    ),
    InterceptedFunction("torch", "_native_multi_head_attention", torch_layers.native_call),
    InterceptedFunction("torch", "_transformer_encoder_layer_fwd", torch_layers.encoder_layer_call),
    InterceptedFunction(
        "torch.nn.functional",
        "multi_head_attention_forward",
        torch_layers.weighted_call,
        torch_layers.weighs,
        edited.weighed,
    ),
    InterceptedFunction(
        "torch.nn.attention.flex_attention",
        "flex_attention",
        functions.flex_call,
        edited=edited.flex,
    ),
    InterceptedFunction(
        "regard.attention.attend", "attend", functions.regard_call, edited=edited.attend
    ),
    InterceptedFunction(
        "regard.attention.attend", "read", functions.regard_call, edited=edited.read
    ),
    InterceptedFunction("torch", "softmax", None),
)


class Interception:
    """Starts with the first open watch of all threads and ends with the last one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._models: list[nn.Module] = []
        self._open: dict[InterceptedFunction, tuple[Any, Any]] = {}
        self._handles: list[Any] = []
        self._interfaces: list[Any] = []

    def open(self, model: nn.Module) -> None:
        with self._lock:
            self._models.append(model)
            self._handles = self._handles or [*running.hooks(), softmaxes.SoftmaxReports()]
            # `transformers` may have been imported after the first watch was opened.
            self._interfaces = self._interfaces or huggingface.hooks()
            for function in FUNCTIONS:
                if function not in self._open and function.module in sys.modules:
                    original = getattr(sys.modules[function.module], function.name)
                    self._open[function] = original, function.wrapper(original)
            swap(list(self._open.values()), [model])

    def shut(self, model: nn.Module) -> None:
        with self._lock:
            del self._models[next(i for i, each in enumerate(self._models) if each is model)]
            last = not self._models
            swap([(there, here) for here, there in self._open.values()], [model], last)
            if not last:  # functions held by modules that other watched models share
                swap(list(self._open.values()), self._models, everywhere=False)
                return
            self._open.clear()
            for handle in (*self._handles, *self._interfaces):
                handle.remove()
            self._handles, self._interfaces = [], []


INTERCEPTION = Interception()


def swap(
    pairs: Iterable[tuple[Any, Any]], models: Iterable[nn.Module], everywhere: bool = True
) -> None:
    """Replace objects in the namespaces of all imported modules and of the models' modules."""
    table = {id(old): (old, new) for old, new in pairs}
    for names in _names(models, everywhere):
        if table.keys().isdisjoint(map(id, names.values())):
            continue
        for name, held in list(names.items()):
            if id(held) in table:
                names[name] = table[id(held)][1]


def _names(models: Iterable[nn.Module], everywhere: bool) -> list[dict[str, Any]]:
    modules = list(sys.modules.values()) if everywhere else []
    parts = [part for model in models for part in model.modules()]
    held = [getattr(each, "__dict__", None) for each in (*modules, *parts)]
    return [each for each in held if type(each) is dict]
