"""Hugging Face models: capture the calls of their attention interface.

At every call `transformers` gets the function of an implementation from AttentionInterface and
passes it queries, grouped keys, mask and scale. That function may repeat keys, change shapes or be
compiled, so the calls are captured at the interface. A function that is not known is described by
its arguments, and the call is recorded if a few rows of its result agree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.masks import MaskLike, causal
from regard.attention.scores import ScaledDot, Score, SoftCap
from regard.watching import functions, running
from regard.watching.captured import CapturedCall
from regard.watching.errors import WatchError
from regard.watching.implied import Implied, difference, is_close, packed_lengths
from regard.watching.interception import (
    Adapter,
    adapter_of,
    edited_outputs,
    register,
    replace_function,
)
from regard.watching.masks import FlexMask

Function = Callable[..., Any]
INTERFACE = "transformers.modeling_utils.AttentionInterface"


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


def _get_interface(original: Function) -> Function:
    @functools.wraps(original)
    def get_interface(interface: Any, name: str, default: Function) -> Any:
        return _intercepted(original(interface, name, default), name)

    return get_interface


def _getitem(original: Function) -> Function:
    @functools.wraps(original)
    def getitem(interface: Any, name: str) -> Any:
        return _intercepted(original(interface, name), name)

    return getitem


def _intercepted(function: Function, name: str) -> Function:
    """The function, wrapped if its arguments describe the attention completely."""
    if torch.compiler.is_compiling() or not running.is_observed():
        return function
    if getattr(function, "reports_attention", False) or not callable(function):
        return function
    adapter = EAGER if name == "eager" else adapter_of(function)
    return _compared(function, name) if adapter is None else adapter.wrap(function)


def _compared(function: Function, name: str) -> Function:
    """A function of another implementation, whose calls are described by their arguments.

    It runs unchanged. If it calls a function that is known, that call is reported instead.
    """

    @functools.wraps(function)
    def through(*arguments: Any, **options: Any) -> Any:
        if not running.is_observed():
            return function(*arguments, **options)
        reports = running.reports()
        result = function(*arguments, **options)
        if running.reports() > reports:
            return result
        running.attention_begins(arguments, options)
        edit = running.edit()
        if not edit:
            running.report_attention(lambda: _agreeing(name, result, *arguments, **options))
            return result
        call = _agreeing(name, result, *arguments, **options)
        outputs = edited_outputs(call, edit)
        running.report_attention(lambda: call, edited=True)
        return outputs.transpose(1, 2).contiguous().to(result[0].dtype), *result[1:]

    through.reports_attention = True  # type: ignore[attr-defined]
    return through


def _agreeing(
    name: str,
    result: Any,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> CapturedCall:
    """The call by its arguments, under the mask that they imply.

    Raises:
        WatchError: its result is another one.
    """
    kernel = f"its attention implementation {name!r}"
    if _is_paged(options):
        raise WatchError(f"{kernel} reads a paged cache: watch model.generate or a forward pass")
    if options.get("dropout"):
        raise WatchError(f"{kernel} applies dropout, so it cannot be compared: call model.eval()")
    output = result[0] if isinstance(result, tuple) else result
    if not isinstance(output, Tensor) or output.ndim != 4:
        raise WatchError(f"{kernel} returns no readings (batch, queries, heads, width)")
    apart = torch.inf
    for call, rows in _described(module, query, key, value, attention_mask, **options):
        with running.reports_suppressed():  # the expected reading is no attention of the model
            apart = min(apart, difference(call, output, rows))
        if is_close(apart, query, output):
            return call
    raise WatchError(
        f"{kernel} computes in an unknown way: its readings differ from those of its arguments by {apart:.2g}"
        ' of their norm; load the model with "sdpa", or pass the function to regard.watching.register'
    )


def _described(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> Iterator[tuple[CapturedCall, list[int]]]:
    """The calls that the arguments may mean, and the rows that tell them apart."""
    queries = query.shape[-2]
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim == 2):  # it is complete
        rows = Implied(queries, key.shape[-2], False).rows()
        yield _flex(module, query, key, value, mask, **options), rows
        return
    # A static cache is longer than its keys.
    if mask is not None and mask.shape[-1] < key.shape[-2]:
        key, value = (plane[..., : mask.shape[-1], :] for plane in (key, value))
    lengths = None
    if mask is None and len(query) == 1:
        sides = [options.get(f"cu_seq_lens_{side}") for side in "qk"]
        texts = packed_lengths(options.get("position_ids"), queries)
        if sides[0] is not None and sides[1] is not None:
            lengths = sides[0].diff(), sides[1].diff()
        elif texts is not None:
            lengths = texts, texts
    implied = Implied(
        queries,
        key.shape[-2],
        _is_causal(module, options),
        options.get("sliding_window"),
        None if mask is None else mask.bool(),
        lengths,
    )
    call = _flex(module, query, key, value, None, **options)
    for readable in implied.masks():
        yield replace(call, mask=readable), implied.rows()


def _describes(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any
) -> bool:
    return len(others) < 2 and not _is_paged(options)


def _is_paged(options: dict[str, Any]) -> bool:
    return any(options.get(name) is not None for name in ("cache", "block_table"))


def _is_causal(module: nn.Module, options: dict[str, Any]) -> bool:
    is_causal = options.get("is_causal")
    return bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)


def _eager(module: nn.Module, *arguments: Any, **options: Any) -> CapturedCall:
    if options.get("s_aux") is None:
        options["s_aux"] = getattr(module, "sinks", None)
    return _flex(module, *arguments, **options)


def _sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> CapturedCall:
    """Without a mask, several queries of a causal module read the keys up to their own position."""
    readable: MaskLike | None = None
    added = None
    if attention_mask is None and query.shape[-2] > 1 and _is_causal(module, options):
        key, readable = key[..., : query.shape[-2], :], causal(align="start")
    else:
        readable, added = functions.mask_of(attention_mask, query.shape[-2], key.shape[-2])
    bias = _bias(added, options.get("position_bias"), key.shape[-2])
    score = ScaledDot(options.get("scaling"))
    return CapturedCall(query, key, score=score, bias=bias, mask=readable, value=value)


def _flex(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> CapturedCall:
    """The soft cap is part of the score. The mask is a function of positions or a bias."""
    score: Score = ScaledDot(options.get("scaling"))
    cap, sinks = options.get("softcap"), options.get("s_aux")
    added = attention_mask if isinstance(attention_mask, Tensor) else None
    return CapturedCall(
        query,
        key,
        score=score if cap is None else SoftCap(score, cap),
        bias=_bias(added, options.get("position_bias"), key.shape[-2]),
        mask=None if attention_mask is added else FlexMask(attention_mask.mask_mod),
        normaliser=None if sinks is None else Sinks(sinks),
        value=value,
    )


def _bias(mask: Tensor | None, positions: Tensor | None, keys: int) -> Tensor | None:
    """The sum of mask and position bias. A mask may be longer than the keys."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
    planes = [plane[..., :keys] for plane in (mask, positions) if plane is not None]
    return functools.reduce(torch.add, planes) if planes else None


def _read(
    weights: Tensor,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, None]:
    return _laid_out(functions.reading(weights, value))


def _laid_out(outputs: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    return outputs.transpose(1, 2).contiguous(), None


def _read_eager(weights: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return _read(weights, *arguments, **options)[0], weights


def _weights(result: Any, *_: Any, **options: Any) -> Tensor | None:
    """The weights that the eager implementation returns."""
    weights = result[1]
    checked = isinstance(weights, Tensor) and weights.ndim == 4 and not options.get("dropout")
    return weights if checked else None


EAGER = Adapter(_eager, _read_eager, _describes, _weights)
for path, capture in (
    ("transformers.integrations.sdpa_attention.sdpa_attention_forward", _sdpa),
    ("transformers.integrations.flex_attention.flex_attention_forward", _flex),
):
    register(path, capture, read=_read, when=_describes, layout=_laid_out)
replace_function(f"{INTERFACE}.get_interface", _get_interface)
replace_function(f"{INTERFACE}.__getitem__", _getitem)
