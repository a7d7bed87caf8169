"""Which model may be searched by a plan, and the plan it has for as long as its weights stay."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from regard.translation.models import compiling
from regard.translation.models.hooks import every
from regard.translation.models.transformer.plain import is_plain

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer
    from regard.translation.models.transformer.planned.plan import Plan

# What a weight is: where and how it lies, and how often it was written to; every norm's epsilon; and
# whether products are rounded.
_Stamp = tuple[tuple[tuple[int, tuple[int, ...], int], ...], tuple[float, ...], bool]
# So many numbers of each weight tell of what was written without being counted: through `.data`,
# and by optimisers whose loops are fused. Training and loading write to all of a weight, which the
# sample sees; single numbers set through `.data` it may miss: to see those, too, all weights would
# have to be read before each batch. Write to the weight itself, under `no_grad`: that is counted.
_SAMPLE = 64


@dataclass(frozen=True)
class _Kept:
    stamp: _Stamp
    places: list[Tensor]  # which also keep the memory from being given to other weights
    numbers: Tensor
    plan: Plan


_plans: weakref.WeakKeyDictionary[nn.Module, _Kept] = weakref.WeakKeyDictionary()


class Planned(ABC):
    """The decoder of a plan after some words; here, so that who asks of what kind a state is loads no loops."""

    @abstractmethod
    def step(self, words: Tensor) -> Tensor: ...

    @abstractmethod
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
    weights = [w for module in every(model) for w in module._parameters.values() if w is not None]
    if any(weight.dtype != torch.float32 or weight.device.type != "cpu" for weight in weights):
        return None
    return _kept(model, weights) if is_plain(model) else None


def _kept(model: Transformer, weights: list[nn.Parameter]) -> Plan:
    from regard.translation.models.transformer.planned.plan import Plan

    stamp = (
        tuple((w.data_ptr(), w.stride(), _writes(w)) for w in weights),
        tuple(norm.eps for norm in every(model) if isinstance(norm, nn.LayerNorm)),
        model.rounded,
    )
    known = _plans.get(model)
    if (
        known is None
        or known.stamp != stamp
        or not torch.equal(_numbers(known.places), known.numbers)
    ):
        places = [_places(weight.detach()) for weight in weights]
        known = _plans[model] = _Kept(stamp, places, _numbers(places), Plan(model))
    return known.plan


def _writes(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version


def _places(weight: Tensor) -> Tensor:
    """Some numbers of a weight, in its memory; an odd number apart, so not all in one column."""
    step = weight.numel() // _SAMPLE | 1
    return weight.as_strided((-(-weight.numel() // step),), (step,))


def _numbers(places: list[Tensor]) -> Tensor:
    """Their bits, of which even those of a NaN equal themselves."""
    return torch.cat(places).view(torch.int32)
