"""Calls of torch's layers without the call of a module, which takes longer than a product of 8 steps of width 64."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as modules_of_torch

from regard.attention.dropout import Dropout, drop


def call(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """layer(x). A layer that another class, hook or method replaces is called as it is."""
    kind: Any = type(layer)
    forward, function = _FUNCTIONS.get(kind, (None, None))
    if function is None or torch.compiler.is_compiling():
        return layer(x)
    if kind.forward is not forward or kind.__call__ is not _CALL:  # as torch.fx replaces it
        return layer(x)
    state = vars(layer)
    if (
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or "forward" in state
        or modules_of_torch._has_any_global_hook()
    ):
        return layer(x)
    try:
        return function(state, x)
    except KeyError:  # a weight that is no parameter
        return layer(x)


def _linear(state: dict[str, Any], x: Tensor) -> Tensor:
    parameters = state["_parameters"]
    return F.linear(x, parameters["weight"], parameters["bias"])


def _layer_norm(state: dict[str, Any], x: Tensor) -> Tensor:
    parameters = state["_parameters"]
    scale, shift = parameters["weight"], parameters["bias"]
    return torch.layer_norm(x, state["normalized_shape"], scale, shift, state["eps"])


def _dropout(state: dict[str, Any], x: Tensor) -> Tensor:
    return drop(x, state["rate"]) if state["training"] and state["rate"] > 0 else x


_CALL: Any = nn.Module.__call__
_FUNCTIONS: dict[type, tuple[Any, Callable[[dict[str, Any], Tensor], Tensor]]] = {
    nn.Linear: (nn.Linear.forward, _linear),
    nn.LayerNorm: (nn.LayerNorm.forward, _layer_norm),
    Dropout: (Dropout.forward, _dropout),
}
