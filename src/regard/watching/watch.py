"""`with regard.watch(model) as seen:` records the attention of a model while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import index
from threading import Lock
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from regard.attention.torch_names import answers
from regard.loops.availability import device_objection
from regard.watching.captured import Captured, RowIndex, Selection
from regard.watching.interception import begin, end
from regard.watching.paths import Layers, is_selected
from regard.watching.records import Recording
from regard.watching.running import Observer, Stack
from regard.watching.seen import Seen
from regard.watching.table import EmbeddingCall
from regard.watching.unembedding import LastLayers

ATTENTIVE = re.compile(r"attention|attn", re.IGNORECASE)
Capture = Callable[[], Captured]
NUMBERS = "a number or several, such as [0, 3]"
LAYERS = 'numbers of layers, or patterns such as "decoder.*"'
COMPILED = (
    "is compiled: its attention runs inside a graph and cannot be observed; run it inside `with"
    ' torch.compiler.set_stance("force_eager"):`, where it gives the same bits as before torch.compile'
)
COMPILED_CALL = "_torchdynamo_orig_callable"  # of functions that torch.compile returned
SCRIPTED = "is TorchScript, which calls no Python functions: watch the model it was made from"
GRAPH = (
    "is a graph of operators, made by torch.export, which call no Python functions of attention:"
    " watch the model it was made from"
)
UNKNOWN = (
    "computes attention in its own code or in an unknown kernel:"
    " add regard.declare(query, key, ...) to it"
)
SOFTMAX = (
    "computed a softmax of shape {}, which may be attention in its own code: if it is,"
    " add regard.declare(query, key, ...) there"
)
OPAQUE = 'its attention implementation {!r} cannot be observed: load the model with "sdpa"'
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@answers({})
def watch(
    model: nn.Module,
    *,
    layers: Layers = None,
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
    nn.Transformer with their fast paths, flex_attention, the functions of Hugging Face's
    AttentionInterface, `regard.attend` and `regard.declare`. It sees calls inside `model`, in the
    thread or task of the `with` block.

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


class Watch(Observer):
    """The context manager that `watch` returns. It can be entered once."""

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        selection: Selection,
        budget: int | None,
        group: bool,
    ) -> None:
        self.model, self._layers, self._lock = model, layers, Lock()
        self._recording = Recording(model, layers, selection, budget, group)
        self._called: dict[str, nn.Module] = {}
        self._softmaxes: dict[str, str] = {}
        self._last_layers = LastLayers() if selection.values else None

    def __enter__(self) -> Seen:
        attentions = Seen(self._recording)
        begin(self)
        return attentions

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end(self)
        recording = self._recording
        modules = dict(self.model.named_modules()) | self._called
        add_compiled(recording.unseen, modules, recording.records, self.graphs)
        add_attentive(recording.unseen, self._called, recording.records, self._layers)
        add_softmaxes(recording.unseen, self._softmaxes, recording.records)
        recording.ran = bool(self._called)
        if self._last_layers is not None:
            recording.unembedding = self._last_layers.unembedding()
        self._called.clear()
        recording.seal()
        if kind is None:
            recording.warn()

    def module_entered(self, path: str, stack: Stack, arguments: object) -> None:
        module = self._called[path] = stack[-1].module
        if self._last_layers is not None:
            self._recording.note_projection(module, arguments)
            vocabulary = max((call.vocabulary for call in self._recording.embedded), default=0)
            self._last_layers.note(module, arguments, vocabulary)
        tokens = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if not (isinstance(module, nn.Embedding) and isinstance(tokens, Tensor)):
            return
        if tokens.ndim == 2 and not tokens.is_nested:
            caller = self.path(stack[:-1])
            if caller and not _is_within(path, caller):  # an encoder and a decoder share it
                path = f"{caller}.{path.rpartition('.')[2]}"
            embedding = EmbeddingCall(path, module.num_embeddings, tokens)
            self._recording.embedded.append(embedding)

    def attention_computed(self, path: str, stack: Stack, capture: Capture) -> None:
        """Record a call. An error is listed in `unseen` and does not reach the model."""
        try:
            with self._lock:
                self._recording.add(path, stack, capture)
        except Exception as reason:
            self._recording.unseen.setdefault(path, f"{type(reason).__name__}: {reason}")

    def softmax_computed(self, path: str, stack: Stack, weights: object, axis: object) -> None:
        """Note a softmax outside of known attention functions."""
        if is_selected(path, self._layers) and _weighs_keys(weights, axis, stack):
            shape = " x ".join(map(str, weights.shape))
            self._softmaxes.setdefault(path, SOFTMAX.format(shape))


def _numbers(name: str, value: Any, expected: str, kinds: tuple[type, ...] = ()) -> Any:
    """One number or several as a tuple; values of other kinds are kept."""
    if value is None:
        return None
    values = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    try:
        return tuple(value if isinstance(value, kinds) else index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: pass {expected}") from None


def _bytes(memory: int | str | None) -> int | None:
    if memory is None or (isinstance(memory, int) and memory >= 0):
        return memory
    size = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmg]?)b?\s*", str(memory).lower())
    if size is None:
        raise ValueError(f'memory is {memory!r}: pass a number of bytes, or such as "500MB"')
    return int(float(size[1]) * UNITS[size[2]])


def add_compiled(
    unseen: dict[str, str],
    modules: Mapping[str, nn.Module],
    recorded: Collection[str],
    graphs: Collection[str],
) -> None:
    """Add compiled modules, none of whose attentions was seen, and modules that called other graphs with attention."""
    compiled: dict[str, str] = {}
    for path, module in modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            compiled[path] = SCRIPTED
        elif is_graph(module) and not _is_within_any(path, compiled):
            compiled[path] = GRAPH
        elif is_compiled(module) and not _is_within_any(path, compiled):
            compiled[path] = COMPILED
    compiled = {path: why for path, why in compiled.items() if not _saw(recorded, path)}
    outermost = [
        path for path in graphs if not (_saw(compiled, path) or _is_within_any(path, compiled))
    ]
    unseen |= compiled | dict.fromkeys(outermost, COMPILED)


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile made it, compiled it in place, or compiled its forward."""
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    forward = vars(module).get("forward")
    return in_place or hasattr(forward, COMPILED_CALL) or type(module).__name__ == "OptimizedModule"


def is_graph(module: nn.Module) -> bool:
    """Whether it is what torch.export makes of a model."""
    return isinstance(module, torch.fx.GraphModule) or type(module).__name__ == "UnflattenedModule"


def add_attentive(
    unseen: dict[str, str],
    called: Mapping[str, nn.Module],
    recorded: Collection[str],
    layers: Layers,
) -> None:
    """Add innermost modules with an attention's class name, if neither they nor an enclosing
    attention module had an attention that was seen."""
    attentive = [path for path, each in called.items() if ATTENTIVE.search(type(each).__name__)]
    for path in attentive:
        if any(other != path and _is_within(other, path) for other in attentive):
            continue
        around = [path, *(each for each in attentive if _is_within(path, each))]
        seen_around = any(_saw(recorded, each) for each in around)
        if is_selected(path, layers) and not seen_around and not _is_within_any(path, unseen):
            config = getattr(called[path], "config", None)
            implementation = getattr(config, "_attn_implementation", None)
            is_observable = implementation in (None, "eager", "sdpa", "flex_attention")
            unseen[path] = UNKNOWN if is_observable else OPAQUE.format(implementation)


def add_softmaxes(
    unseen: dict[str, str], softmaxes: Mapping[str, str], recorded: Collection[str]
) -> None:
    """Add modules with a softmax, unless an attention of the module or of its parent was seen."""
    attending = {path.partition("#")[0] for path in recorded}
    for path, why in softmaxes.items():
        attended = path in attending or ("." in path and path.rpartition(".")[0] in attending)
        if not attended and not _is_within_any(path, unseen):
            unseen[path] = why


def _weighs_keys(weights: object, axis: object, stack: Stack) -> TypeGuard[Tensor]:
    """Whether the shapes are those of attention weights.

    Either they are (..., length, length), or the normalised axis is as long as a sequence (batch,
    length, width) that was the input of a projection in the module or in its parent.
    """
    if not (isinstance(weights, Tensor) and isinstance(axis, int)) or weights.ndim < 2:
        return False
    count, shape = weights.shape[axis], weights.shape
    if count < 2:
        return False
    if weights.ndim > 2 and axis % weights.ndim == weights.ndim - 1 and shape[-2] == count:
        return True
    read = [each[1] for frame in stack[-2:] for each in frame.read if isinstance(each, tuple)]
    return any(len(of) > 2 and (of[0], of[-2]) == (shape[0], count) for of in read)


def _saw(recorded: Collection[str], path: str) -> bool:
    return any(_is_within(each, path) for each in recorded)


def _is_within_any(path: str, outer: Collection[str]) -> bool:
    return any(_is_within(path, each) for each in outer)


def _is_within(path: str, outer: str) -> bool:
    return not outer or path == outer or path.startswith((f"{outer}.", f"{outer}#"))
