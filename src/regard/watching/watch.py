"""`with regard.watch(model) as seen:` keeps the attention of a model while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import index
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.torch_names import answers
from regard.loops.availability import device_objection, transformed
from regard.watching import running
from regard.watching.captured import Captured, DeferredCall, RowIndex, Selection, row_numbers
from regard.watching.errors import WatchError
from regard.watching.following import Followed
from regard.watching.interception import ModelObserver
from regard.watching.passes import DecoderPasses
from regard.watching.readings import Projected, output_layer
from regard.watching.records import Recording
from regard.watching.running import Stack
from regard.watching.seen import Seen
from regard.watching.table import EmbeddingCall
from regard.watching.unseen import SOFTMAX, add_attentive, add_compiled, add_softmaxes, weighs_keys

Capture = Callable[[], Captured]
NUMBERS = "a number or several, such as [0, 3]"
LAYERS = 'numbers of layers, or patterns such as "decoder.*"'
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@answers({})
def watch(
    model: nn.Module,
    *,
    layers: running.Layers = None,
    heads: int | Iterable[int] | None = None,
    rows: int | RowIndex | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    memory: int | str | None = None,
    copy: bool = False,
    group: bool = True,
    gradients: bool = False,
    values: bool = False,
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
        values: keep the values as well, for `seen.moved` and `seen.readings`.

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
        heads=_numbers("heads", heads, NUMBERS),
        rows=rows if isinstance(rows, slice) else _numbers("rows", rows, NUMBERS),
        device=None if device is None else torch.device(device),
        dtype=dtype,
        copy=copy,
        gradients=gradients,
        values=values,
    )
    patterns = _numbers("layers", layers, LAYERS, (str,))
    return Watch(model, patterns, selection, _bytes(memory), group)


class Watch(ModelObserver):
    """The context manager that `watch` returns. It can be entered once."""

    def __init__(
        self,
        model: nn.Module,
        layers: running.Layers,
        selection: Selection,
        budget: int | None,
        group: bool,
    ) -> None:
        super().__init__(model)
        passes = DecoderPasses() if group else None
        self._layers, self._lock = layers, Lock()
        self._recording = Recording(type(model).__name__, selection, passes, budget)
        self._followed = None if passes is None else Followed(passes)
        self._called: dict[str, nn.Module] = {}
        self._softmaxes: dict[str, str] = {}
        self._unread = ""  # the path of the attention whose output no layer has read yet

    def __enter__(self) -> Seen:
        self.begin()
        return Seen(self._recording)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end()
        recording = self._recording
        recording.seal()
        if self._followed is not None:
            self._followed.clear()
        modules = dict(self._model.named_modules()) | self._called
        add_compiled(recording.unseen, modules, recording.records)
        add_attentive(recording.unseen, self._called, recording.records, self._is_watched)
        add_softmaxes(recording.unseen, self._softmaxes, recording.records)
        recording.ran = bool(self._called)
        self._called.clear()
        if kind is None:
            recording.warn()

    def module_entered(self, stack: Stack, arguments: object) -> None:
        path = self.path(stack)
        if path is None:
            return
        module = self._called[path] = stack[-1].module
        if self._unread and running.PROJECTION.search(type(module).__name__):
            self._note_projection(module, arguments)
        tokens = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if not (isinstance(module, nn.Embedding) and isinstance(tokens, Tensor)):
            return
        if tokens.ndim == 2 and not tokens.is_nested:
            embedding = EmbeddingCall(path, module.num_embeddings, tokens)
            self._recording.embedded.append(embedding)

    def attention_computed(self, stack: Stack, capture: Capture) -> None:
        """Keep a call. An error is listed in `unseen` and does not reach the model."""
        path = self.path(stack)
        if path is None:
            return
        try:
            with self._lock:
                self._keep(path, stack, capture)
        except Exception as reason:
            self._recording.unseen.setdefault(path, f"{type(reason).__name__}: {reason}")

    def softmax_computed(self, stack: Stack, weights: object, axis: object) -> None:
        """Note a softmax outside of known attention functions."""
        path = self.path(stack)
        if path is not None and self._is_watched(path) and weighs_keys(weights, axis, stack):
            shape = " x ".join(map(str, weights.shape))
            self._softmaxes.setdefault(path, SOFTMAX.format(shape))

    def _keep(self, path: str, stack: Stack, capture: Capture) -> None:
        number = f"#{stack[-1].attention}" if stack[-1].attention else ""
        if not self._is_watched(path):
            self._recording.excluded.setdefault(path)
            if self._followed is not None and not transformed():
                self._followed.add(path + number, capture)
            return
        if transformed():
            raise WatchError("it runs under torch.func or a trace, where tensors have no values")
        budget, followed = self._recording.budget, self._followed
        if budget is not None:
            self._recording.check_budget(budget, followed.tensors() if followed else [])
        gradients = self._recording.selection.gradients
        with torch.set_grad_enabled(gradients and torch.is_grad_enabled()):
            call = capture()
            if isinstance(call, DeferredCall) and call.within:
                path = f"{path}.{call.within}" if path else call.within
            self._recording.add(path + number, call, stack)
        if self._recording.selection.values:
            within = call.within if isinstance(call, DeferredCall) else ""
            layer = output_layer(stack[-1].module, within)
            record = self._recording.records[path + number]
            record.projected = None if layer is None else Projected(layer)
            self._unread = path + number if layer is None else ""

    def _note_projection(self, module: nn.Module, arguments: object) -> None:
        """The next projection after an attention may be its output projection."""
        record, self._unread = self._recording.records[self._unread], ""
        states = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if (
            isinstance(states, Tensor)
            and states.ndim > 1
            and not (states.is_nested or transformed())
        ):
            rows = row_numbers(self._recording.selection.rows, states.shape[-2])
            if rows:
                record.projected = Projected(module, states[..., rows[-1], :].detach().clone())

    def _is_watched(self, path: str) -> bool:
        names = (running.short(path, kind) for kind in ("self", "cross", "causal"))
        return any(running.matches(path, name, self._layers) for name in names)


def _numbers(name: str, value: Any, expected: str, kinds: tuple[type, ...] = ()) -> Any:
    """One number or several as a tuple; values of other kinds are kept."""
    if value is None:
        return None
    values = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    try:
        return tuple(each if isinstance(each, kinds) else index(each) for each in values)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: pass {expected}") from None


def _bytes(memory: int | str | None) -> int | None:
    if memory is None or (isinstance(memory, int) and memory >= 0):
        return memory
    size = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmg]?)b?\s*", str(memory).lower())
    if size is None:
        raise ValueError(f'memory is {memory!r}: pass a number of bytes, or such as "500MB"')
    return int(float(size[1]) * UNITS[size[2]])
