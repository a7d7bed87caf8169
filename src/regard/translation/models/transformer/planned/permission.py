"""Which model may be searched by a plan, and the plan it has for as long as its weights stay."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from regard.translation.models import compiling

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer
    from regard.translation.models.transformer.planned.plan import Plan

# What a weight is: which tensor, and how often it was written to.
_Stamp = tuple[tuple[int, int], ...]
_plans: weakref.WeakKeyDictionary[nn.Module, tuple[_Stamp, Plan]] = weakref.WeakKeyDictionary()


@runtime_checkable
class Planned(Protocol):
    """The decoder of a plan after some words."""

    def step(self, words: Tensor) -> Tensor: ...

    def select(self, rows: Tensor) -> Self: ...


def begin(model: Transformer, source: Tensor, lengths: Tensor) -> Planned | None:
    """The decoder of this model's plan before its first word, or None; see `plan_of`."""
    plan = plan_of(model, source)
    if plan is None:
        return None
    from regard.translation.models.transformer.planned.stepping import PlannedState

    return PlannedState(plan, plan.encode(source, lengths))


def plan_of(model: Transformer, source: Tensor) -> Plan | None:
    """The plan by which this model translates these sources; None where its own layers must do it.

    Those do it on other devices, in other precisions, where gradients or hooks are wanted, and
    where compiled loops cannot be kept: to compile them takes longer than most texts.
    """
    if not len(source) or torch.is_grad_enabled() or model.training:
        return None
    if torch.is_autocast_enabled("cpu") or not compiling.serves(source.device):
        return None
    modules = list(model.modules())
    weights = [w for module in modules for w in module._parameters.values() if w is not None]
    if any(weight.dtype != torch.float32 or weight.device.type != "cpu" for weight in weights):
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        return None
    return _kept(model, weights)


def _kept(model: Transformer, weights: list[nn.Parameter]) -> Plan:
    from regard.translation.models.transformer.planned.plan import Plan

    stamp = tuple((weight.data_ptr(), weight._version) for weight in weights)
    known = _plans.get(model)
    if known is None or known[0] != stamp:
        known = _plans[model] = stamp, Plan(model)
    return known[1]
