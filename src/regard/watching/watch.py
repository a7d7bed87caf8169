"""`with regard.watch(model) as seen:` keeps the attention of a model while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from operator import index
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.torch_names import answers
from regard.loops.availability import device_objection, transformed
from regard.watching import names, running
from regard.watching.captured import CapturedCall, RowIndex, Selection
from regard.watching.errors import WatchError
from regard.watching.following import Followed
from regard.watching.generation import CachedGeneration
from regard.watching.interception import ModelObserver
from regard.watching.passes import DecoderPasses
from regard.watching.records import AttentionRecord, Record, storages
from regard.watching.running import Stack
from regard.watching.seen import Seen
from regard.watching.table import EmbeddingCall
from regard.watching.torch_layers import Captured, DeferredCall
from regard.watching.unseen import SOFTMAX, add_attentive, add_compiled, add_softmaxes, weighs_keys

Capture = Callable[[], Captured]
NUMBERS = "a number or several, such as [0, 3]"
LAYERS = 'numbers of layers, or patterns such as "decoder.*"'
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@answers({})
def watch(
    model: nn.Module,
    *,
    layers: names.Layers = None,
    heads: int | Iterable[int] | None = None,
    rows: int | RowIndex | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    memory: int | str | None = None,
    copy: bool = False,
    group: bool = True,
    gradients: bool = False,
) -> Watch:
    """Observe the attention of a model while it runs, without changing its output.

    Queries and keys of every attention are kept by reference. Weights are computed only when a look
    needs them. A watch sees F.scaled_dot_product_attention, nn.MultiheadAttention and the layers of
    nn.Transformer with their fast paths, flex_attention, Hugging Face's eager, sdpa and flex
    attention, `regard.attend` and `regard.declare`. It sees calls inside `model`, in the thread or
    task of the `with` block.

    Args:
        model: any module, on any device.
        layers: the number of a layer, a pattern of names or paths such as "decoder.*", or several;
            None for all.
        heads: the numbers of the heads to keep, one or several; None for all.
        rows: the queries to keep of each call, a slice, one or several numbers; None for all.
        device: the device of the kept copies, such as "cpu"; None to keep references.
        dtype: the precision of the kept queries and keys, such as torch.float16.
        memory: the largest number of bytes to keep, or a string such as "500MB". Later calls are
            not kept and are listed in `seen.unseen`. A cache that was replaced is not counted.
        copy: keep copies, for models that change queries or keys in record.
        group: combine the one-token calls of cached generation, and the steps of a loop, into one
            look.
        gradients: keep the graph, so that looks have gradients.

    Returns:
        A context manager, whose value is a `Seen`: a mapping of names to looks.

    Raises:
        TypeError: the model is not an nn.Module, or layers, heads or rows have a wrong type.
        ValueError: this machine has no such device.

    Example:
        >>> import torch, regard
        >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> with regard.watch(model) as seen:
        ...     output, _ = model(x, x, x, need_weights=False)
        >>> seen["self"].shape
        (1, 2, 5, 5)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: pass the torch.nn.Module to watch")
    if device is not None and (objection := device_objection(device)):
        raise ValueError(f"device {device} {objection}")
    selection = Selection(
        heads=_several("heads", heads, NUMBERS),
        rows=rows if isinstance(rows, slice) else _several("rows", rows, NUMBERS),
        device=None if device is None else torch.device(device),
        dtype=dtype,
        copy=copy,
        gradients=gradients,
    )
    patterns = _several("layers", layers, LAYERS, (str,))
    return Watch(model, patterns, selection, _bytes(memory), group)


class Watch(ModelObserver):
    """The context manager that `watch` returns. It can be entered once."""

    def __init__(
        self,
        model: nn.Module,
        layers: names.Layers,
        selection: Selection,
        budget: int | None,
        group: bool,
    ) -> None:
        super().__init__(model)
        self._layers, self._selection, self._budget = layers, selection, budget
        self._passes = DecoderPasses() if group else None
        self._followed = None if self._passes is None else Followed(self._passes)
        self._seen, self._lock = Seen(), Lock()
        self._seen.heads, self._seen.model = selection.heads, type(model).__name__
        self._called: dict[str, nn.Module] = {}
        self._storages: dict[Record, dict[tuple[int, int], int]] = {}
        self._softmaxes: dict[str, str] = {}

    def __enter__(self) -> Seen:
        self.begin()
        return self._seen

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end()
        for record in self._seen._records.values():
            last = record.calls[-1]
            if isinstance(last, CachedGeneration):
                last.seal()
        if self._followed is not None:
            self._followed.clear()
        modules = dict(self._model.named_modules()) | self._called
        add_compiled(self._seen.unseen, modules, self._seen._records)
        add_attentive(self._seen.unseen, self._called, self._seen._records, self._is_asked)
        add_softmaxes(self._seen.unseen, self._softmaxes, self._seen._records)
        self._seen.ran = bool(self._called)
        self._called.clear()
        if kind is None:
            self._seen._warn()

    def module_entered(self, stack: Stack, arguments: object) -> None:
        path = self.path(stack)
        if path is None:
            return
        module = self._called[path] = stack[-1].module
        asked = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if not (isinstance(module, nn.Embedding) and isinstance(asked, Tensor)):
            return
        if asked.ndim == 2 and not asked.is_nested:
            self._seen.tokens.append(EmbeddingCall(path, module.num_embeddings, asked))

    def attention_computed(self, stack: Stack, capture: Capture) -> None:
        """Keep a call. An error is listed in `unseen` and does not reach the model."""
        path = self.path(stack)
        if path is None:
            return
        try:
            with self._lock:
                self._keep(path, stack, capture)
        except Exception as reason:
            self._seen.unseen.setdefault(path, f"{type(reason).__name__}: {reason}")

    def softmax_computed(self, stack: Stack, weights: object, axis: object) -> None:
        """Note a softmax outside of known attention functions."""
        path = self.path(stack)
        if path is not None and self._is_asked(path) and weighs_keys(weights, axis, stack):
            shape = " x ".join(map(str, weights.shape))
            self._softmaxes.setdefault(path, SOFTMAX.format(shape))

    def _keep(self, path: str, stack: Stack, capture: Capture) -> None:
        if not self._is_asked(path):
            self._seen.passed.setdefault(path)
            if self._followed is not None and not transformed():
                number = f"#{stack[-1].attention}" if stack[-1].attention else ""
                self._followed.add(f"{path}{number}", capture)
            return
        if transformed():
            raise WatchError("it runs under torch.func or a trace, where tensors have no values")
        if self._budget is not None and self._used() >= self._budget:
            raise WatchError(f"the memory of {self._budget:,} bytes was used up before it")
        with torch.set_grad_enabled(self._selection.gradients and torch.is_grad_enabled()):
            call = capture()
            if isinstance(call, DeferredCall) and call.within:
                path = f"{path}.{call.within}" if path else call.within
            if stack[-1].attention:
                path = f"{path}#{stack[-1].attention}"
            record = self._seen._records.get(path) or AttentionRecord(path)
            record.crossing = record.crossing or running.named_across(stack)
            record.in_one_memory = stack[-1].in_one_memory
            if stack[-1].crosses is not None:
                record.reads_another = record.reads_another or stack[-1].crosses
            record.unbatched = isinstance(call, CapturedCall) and _is_unbatched(stack, call)
            record.keep(call, self._selection, self._passes)
        self._seen._records[path] = record
        if self._budget is not None:
            for each in record.calls[-2:]:  # the one before may have become smaller
                self._storages[each] = storages(each.tensors())

    def _used(self) -> int:
        """The bytes of all kept tensors. Memory that several share is counted once."""
        excluded = [] if self._followed is None else self._followed.tensors()
        every = (each.items() for each in (*self._storages.values(), storages(excluded)))
        return sum(dict(chain.from_iterable(every)).values())

    def _is_asked(self, path: str) -> bool:
        own = (names.short(path, kind) for kind in ("self", "cross", "causal"))
        return any(names.chosen(path, name, self._layers) for name in own)


def _is_unbatched(stack: Stack, call: CapturedCall) -> bool:
    """Whether projections read (queries, width), without a batch axis."""
    shapes = [read[1] for module in stack[-2:] for read in module.read if isinstance(read, tuple)]
    return any(len(shape) == 2 and shape[0] == call.query.shape[-2] for shape in shapes)


def _several(name: str, given: Any, expected: str, kinds: tuple[type, ...] = ()) -> Any:
    """One number or several as a tuple; values of other kinds are kept."""
    if given is None:
        return None
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    try:
        return tuple(each if isinstance(each, kinds) else index(each) for each in several)
    except TypeError:
        raise TypeError(f"{name} is {given!r}: pass {expected}") from None


def _bytes(memory: int | str | None) -> int | None:
    if memory is None or (isinstance(memory, int) and memory >= 0):
        return memory
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmg]?)b?\s*", str(memory).lower())
    if found is None:
        raise ValueError(f'memory is {memory!r}: pass a number of bytes, or such as "500MB"')
    return int(float(found[1]) * UNITS[found[2]])
