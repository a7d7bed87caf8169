"""Who wants to be called when a layer is, by whatever way he asked for it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.translation.engines.engine import hooked


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


@pytest.mark.parametrize(
    "name",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_a_hook_of_a_layer_within(name):
    model = layers()
    assert not hooked(model)
    hook = getattr(model[1], name)(lambda *_: None)
    assert hooked(model)
    hook.remove()
    assert not hooked(model)


@pytest.mark.parametrize(
    "register", [register_module_forward_hook, register_module_forward_pre_hook]
)
def test_a_hook_of_all_modules(register):
    hook = register(lambda *_: None)
    try:
        assert hooked(layers())
    finally:
        hook.remove()
    assert not hooked(layers())


def test_a_forward_that_was_put_in_the_place_of_the_own_one():
    model = layers()
    model[0].forward = lambda x: torch.zeros_like(x)
    assert hooked(model)


def test_a_module_that_occurs_in_a_circle_is_looked_at_once():
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner, nn.Sequential(inner, nn.ReLU()))
    inner.owner = outer
    assert not hooked(outer)
    outer[1][1].register_forward_hook(lambda *_: None)
    assert hooked(outer)
