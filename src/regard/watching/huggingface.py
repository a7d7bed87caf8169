"""Hugging Face models: capture the calls of their attention interface.

At every call `transformers` gets the function of an implementation from AttentionInterface and
passes it queries, grouped keys, mask and scale. That function may repeat keys, change shapes or be
compiled, so the calls are captured at the interface.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attention.masks import causal
from regard.attention.scores import ScaledDot, Score, SoftCap
from regard.watching import edited, running
from regard.watching.captured import CapturedCall
from regard.watching.flex import FlexMask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

MODULE, CLASS = "transformers.modeling_utils", "AttentionInterface"
OWN = {
    "sdpa_attention_forward": "transformers.integrations.sdpa_attention",
    "flex_attention_forward": "transformers.integrations.flex_attention",
}


@dataclass(frozen=True, eq=False)
class Sinks:
    """Softmax with an additional score in each row, whose weight is discarded.

    Source: Agarwal et al. 2025 (gpt-oss), arXiv 2508.10925, section 2.2.
    """

    sinks: Tensor  # one for each head

    def __call__(self, scores: Tensor) -> Tensor:
        sink = self.sinks.reshape(-1, 1, 1).to(scores).expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]

    def of_heads(self, heads: Tensor) -> Sinks:
        return Sinks(self.sinks.reshape(-1)[heads.to(self.sinks.device)])


def hooks() -> list[_Interface]:
    """Intercept the interface, if `transformers` is imported."""
    found = getattr(sys.modules.get(MODULE), CLASS, None)
    return [] if found is None else [_Interface(found)]


class _Interface:
    """Replaces the two methods of the interface that return functions, until `remove`."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._own = {name: vars(owner).get(name) for name in ("get_interface", "__getitem__")}
        asked, got = owner.get_interface, owner.__getitem__

        def get_interface(interface: Any, name: str, default: Callable[..., Any]) -> Any:
            return _intercepted(asked(interface, name, default), name)

        def getitem(interface: Any, name: str) -> Any:
            return _intercepted(got(interface, name), name)

        owner.get_interface = get_interface
        owner.__getitem__ = getitem

    def remove(self) -> None:
        for name, method in self._own.items():
            if method is None:
                delattr(self._owner, name)
            else:
                setattr(self._owner, name, method)


def _intercepted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, wrapped if its arguments describe the attention completely."""
    capture = _known(function, name)
    if capture is None or torch.compiler.is_compiling() or not running.is_observed():
        return function

    @functools.wraps(function)
    def through(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *others: Any, **how: Any
    ) -> Any:
        if not running.is_observed() or others or how.get("cache") is not None:
            return function(module, query, key, value, mask, *others, **how)
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


def _known(function: Callable[..., Any], name: str) -> Callable[..., CapturedCall] | None:
    if getattr(function, "reports_attention", False):
        return None
    if name == "eager":
        return _eager
    own = OWN.get(getattr(function, "__name__", ""))
    if own is None or getattr(function, "__module__", None) != own:
        return None
    return _sdpa if name == "sdpa" else _flex


def _eager(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    how: dict[str, Any],
    weights: object,
) -> CapturedCall:
    """The eager implementation returns weights. Their last row is kept as the witness."""
    sinks = how.get("s_aux")
    if sinks is None:
        sinks = getattr(module, "sinks", None)
    witness = None
    if isinstance(weights, Tensor) and weights.ndim == 4 and not how.get("dropout"):
        witness = weights[..., -1:, :].detach().clone()
    return CapturedCall(
        query,
        key,
        score=_score(how),
        bias=_bias(mask, how.get("position_bias"), key.shape[-2]),
        normaliser=None if sinks is None else Sinks(sinks),
        witness=witness,
    )


def _sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    how: dict[str, Any],
    weights: object,
) -> CapturedCall:
    """Without a mask, several queries of a causal module read the keys up to their own position."""
    causal_argument = how.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if causal_argument is None else causal_argument
    triangle = mask is None and query.shape[-2] > 1 and bool(is_causal)
    if triangle and key.shape[-2] > query.shape[-2]:
        key = key[..., : query.shape[-2], :]
    readable = causal(align="start") if triangle else None
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        mask, readable = None, mask
    bias = _bias(mask, how.get("position_bias"), key.shape[-2])
    return CapturedCall(query, key, score=ScaledDot(how.get("scaling")), bias=bias, mask=readable)


def _flex(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | BlockMask | None,
    how: dict[str, Any],
    weights: object,
) -> CapturedCall:
    """The soft cap is part of the score. The mask is a function of positions or a bias."""
    added = mask if isinstance(mask, Tensor) else None
    rule = None if mask is None or isinstance(mask, Tensor) else FlexMask(mask.mask_mod)
    sinks = how.get("s_aux")
    return CapturedCall(
        query,
        key,
        score=_score(how),
        bias=_bias(added, how.get("position_bias"), key.shape[-2]),
        mask=rule,
        normaliser=None if sinks is None else Sinks(sinks),
    )


def _score(how: dict[str, Any]) -> Score:
    score: Score = ScaledDot(how.get("scaling"))
    cap = how.get("softcap")
    return score if cap is None else SoftCap(score, cap)


def _bias(mask: Tensor | None, positions: Tensor | None, keys: int) -> Tensor | None:
    """The sum of mask and position bias. A mask may be longer than the keys."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
    both = [each[..., :keys] for each in (mask, positions) if each is not None]
    return both[0] + both[1] if len(both) == 2 else both[0] if both else None
