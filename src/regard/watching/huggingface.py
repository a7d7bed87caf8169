"""Hugging Face models: capture the calls of their attention interface.

At every call `transformers` gets the function of an implementation from AttentionInterface and
passes it queries, grouped keys, mask and scale. That function may repeat keys, change shapes or be
compiled, so the calls are captured at the interface.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.masks import MaskLike, causal
from regard.attention.scores import ScaledDot, Score, SoftCap
from regard.watching import edited, functions, running
from regard.watching.captured import CapturedCall
from regard.watching.masks import FlexMask

MODULE, CLASS = "transformers.modeling_utils", "AttentionInterface"


@dataclass(frozen=True, eq=False)
class Sinks:
    """Softmax with an additional score in each row, whose weight is discarded.

    Source: Agarwal et al. 2025 (gpt-oss), arXiv 2508.10925, section 2.2.
    """

    sinks: Tensor  # one for each head

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sinks) and self.sinks is other.sinks

    def __call__(self, scores: Tensor) -> Tensor:
        sink = self.sinks.reshape(-1, 1, 1).to(scores).expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]

    def of_heads(self, heads: Tensor) -> Sinks:
        return Sinks(self.sinks.reshape(-1)[heads.to(self.sinks.device)])


def replacements() -> list[tuple[Any, str, Callable[..., Any]]]:
    """The two methods of the interface that return functions, if `transformers` is imported."""
    owner = getattr(sys.modules.get(MODULE), CLASS, None)
    if owner is None:
        return []
    asked, got = owner.get_interface, owner.__getitem__

    def get_interface(interface: Any, name: str, default: Callable[..., Any]) -> Any:
        return _intercepted(asked(interface, name, default), name)

    def getitem(interface: Any, name: str) -> Any:
        return _intercepted(got(interface, name), name)

    return [(owner, "get_interface", get_interface), (owner, "__getitem__", getitem)]


def _intercepted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, wrapped if its arguments describe the attention completely."""
    place = getattr(function, "__module__", None), getattr(function, "__name__", None)
    capture = _eager if name == "eager" else CAPTURES.get(place)
    if getattr(function, "reports_attention", False):
        return function
    if capture is None or torch.compiler.is_compiling() or not running.is_observed():
        return function

    @functools.wraps(function)
    def through(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *others: Any, **how: Any
    ) -> Any:
        if not running.is_observed() or others or how.get("cache") is not None:
            return function(module, query, key, value, mask, *others, **how)
        running.attention_begins(query, key, value)
        edit = running.edit()
        if edit:
            call = capture(module, query, key, mask, how, None)
            reading, weights = edited.reading(call, value, edit)
            result = reading.transpose(1, 2).contiguous(), weights if name == "eager" else None
        else:
            with running.reports_suppressed():
                result = function(module, query, key, value, mask, **how)
        witness = None if edit else result[1]
        running.report_attention(
            lambda: capture(module, query, key, mask, how, witness), edited=bool(edit)
        )
        return result

    through.reports_attention = True  # type: ignore[attr-defined]
    return through


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, how: dict[str, Any], weights: object
) -> CapturedCall:
    """The eager implementation returns weights. Their last row is kept as the witness."""
    if how.get("s_aux") is None:
        how = how | {"s_aux": getattr(module, "sinks", None)}
    call = _flex(module, query, key, mask, how, weights)
    if isinstance(weights, Tensor) and weights.ndim == 4 and not how.get("dropout"):
        return replace(call, witness=weights[..., -1:, :].detach().clone())
    return call


def _sdpa(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, how: dict[str, Any], weights: object
) -> CapturedCall:
    """Without a mask, several queries of a causal module read the keys up to their own position."""
    is_causal = how.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    readable: MaskLike | None = None
    if mask is None and query.shape[-2] > 1 and is_causal:
        key, readable = key[..., : query.shape[-2], :], causal(align="start")
    else:
        readable, mask = functions.mask_of(mask, query.shape[-2], key.shape[-2])
    bias = _bias(mask, how.get("position_bias"), key.shape[-2])
    return CapturedCall(query, key, score=ScaledDot(how.get("scaling")), bias=bias, mask=readable)


def _flex(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, how: dict[str, Any], weights: object
) -> CapturedCall:
    """The soft cap is part of the score. The mask is a function of positions or a bias."""
    score: Score = ScaledDot(how.get("scaling"))
    cap, sinks = how.get("softcap"), how.get("s_aux")
    added = mask if isinstance(mask, Tensor) else None
    return CapturedCall(
        query,
        key,
        score=score if cap is None else SoftCap(score, cap),
        bias=_bias(added, how.get("position_bias"), key.shape[-2]),
        mask=None if mask is added else FlexMask(mask.mask_mod),
        normaliser=None if sinks is None else Sinks(sinks),
    )


def _bias(mask: Tensor | None, positions: Tensor | None, keys: int) -> Tensor | None:
    """The sum of mask and position bias. A mask may be longer than the keys."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
    planes = [each[..., :keys] for each in (mask, positions) if each is not None]
    return functools.reduce(torch.add, planes) if planes else None


CAPTURES: dict[tuple[Any, Any], Callable[..., CapturedCall]] = {
    ("transformers.integrations.sdpa_attention", "sdpa_attention_forward"): _sdpa,
    ("transformers.integrations.flex_attention", "flex_attention_forward"): _flex,
}
