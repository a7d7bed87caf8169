"""What several tests of the watch need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

CLOSE = {"atol": 1e-5, "rtol": 0.0}


def operators(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a run returns, and the operators of torch that it came to, in order."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        result = run()
    return result, [event.name for event in profiled.events() if event.name.startswith("aten::")]


def by_hand(
    query: torch.Tensor,
    key: torch.Tensor,
    added: torch.Tensor | float = 0.0,
    scale: float | None = None,
    cap: float | None = None,
) -> torch.Tensor:
    """The weights as the equation has them; fewer keys than heads are repeated."""
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    return torch.softmax(scores + added, -1)


def masked(readable: torch.Tensor) -> torch.Tensor:
    """What is to be added to scores where True = may be read."""
    return torch.zeros(readable.shape).masked_fill(~readable, -torch.inf)


class Fused(torch.nn.Module):
    """A module that calls fused attention with whatever it is passed. Its values are other tensors than the keys."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, **how: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, key.clone(), **how)
