"""Layers that are called without a module's call give what the module gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

from regard.attention.blocks import FeedForward
from regard.attention.dropout import Dropout
from regard.attention.layer_calls import call

X = torch.linspace(-1.0, 1.0, 24).view(2, 3, 4)


def with_attribute() -> nn.Module:
    layer = nn.Linear(4, 4)
    weight = layer.weight.detach() * 2
    del layer.weight
    layer.weight = weight  # type: ignore[assignment]
    return layer


def with_method() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.forward = lambda x: x * 3  # type: ignore[method-assign]
    return layer


def with_hook() -> nn.Module:
    layer = nn.LayerNorm(4)
    layer.register_forward_hook(lambda module, x, output: output + 5)
    return layer


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 5),
    "without a bias": lambda: nn.Linear(4, 5, bias=False),
    "norm": lambda: nn.LayerNorm(4, eps=0.1),
    "norm without weights": lambda: nn.LayerNorm(4, elementwise_affine=False),
    "another norm": lambda: nn.RMSNorm(4),
    "dropout in use": lambda: Dropout(0.5).eval(),
    "parametrized": lambda: parametrizations.weight_norm(nn.Linear(4, 5)),
    "weight that is no parameter": with_attribute,
    "method of its own": with_method,
    "hook": with_hook,
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_result_is_that_of_the_module(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    assert torch.equal(call(layer, X), layer(X))


def test_dropout_drops_in_training() -> None:
    assert (call(Dropout(0.5), torch.ones(100)) == 0).any()


def test_hooks_for_all_modules_are_called() -> None:
    names: list[Any] = []
    handle = register_module_forward_hook(lambda module, x, output: names.append(type(module)))
    try:
        call(nn.Linear(4, 4), X)
    finally:
        handle.remove()
    assert names == [nn.Linear]


@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.LayerNorm(4), Dropout(0.5)], ids=str)
def test_a_method_of_the_class_that_is_replaced_is_called(
    layer: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(layer), "forward", lambda layer, x: x * 7)
    assert torch.equal(call(layer, X), X * 7)


@pytest.mark.unannotated  # torch.fx passes proxies of tensors
def test_layers_stay_layers_in_a_graph_of_fx() -> None:
    graph = torch.fx.symbolic_trace(FeedForward(4, 8)).graph
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["inner", "outer"]
