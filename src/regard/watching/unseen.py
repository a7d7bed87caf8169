"""Modules that probably computed attention which a watch did not see, each with a reason."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeGuard

import torch
from torch import Tensor, nn

from regard.watching import running
from regard.watching.running import Stack

COMPILED = (
    "is compiled: its attention runs inside a graph and cannot be observed;"
    ' watch the model before torch.compile, or under torch.compiler.set_stance("force_eager")'
)
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


def add_compiled(
    unseen: dict[str, str], modules: Mapping[str, nn.Module], recorded: Collection[str]
) -> None:
    """Add compiled modules, none of whose attentions was seen."""
    compiled: dict[str, str] = {}
    for path, module in modules.items():
        call = getattr(module, "_compiled_call_impl", None)
        is_compiled = call is not None or type(module).__name__ == "OptimizedModule"
        if isinstance(module, torch.jit.ScriptModule):
            compiled[path] = SCRIPTED
        elif is_graph(module) and not _is_within_any(path, compiled):
            compiled[path] = GRAPH
        elif is_compiled and not _is_within_any(path, compiled):
            compiled[path] = COMPILED
    unseen |= {path: why for path, why in compiled.items() if not _saw(recorded, path)}


def is_graph(module: nn.Module) -> bool:
    """Whether it is what torch.export makes of a model."""
    return isinstance(module, torch.fx.GraphModule) or type(module).__name__ == "UnflattenedModule"


def add_attentive(
    unseen: dict[str, str],
    called: Mapping[str, nn.Module],
    recorded: Collection[str],
    is_asked: Callable[[str], bool],
) -> None:
    """Add innermost modules with an attention's class name, if neither they nor an enclosing
    attention module had an attention that was seen."""
    attentive = [
        path for path, each in called.items() if running.ATTENTIVE.search(type(each).__name__)
    ]
    for path in attentive:
        if any(other != path and _is_within(other, path) for other in attentive):
            continue
        around = [path, *(each for each in attentive if _is_within(path, each))]
        seen_around = any(_saw(recorded, each) for each in around)
        if is_asked(path) and not seen_around and not _is_within_any(path, unseen):
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


def weighs_keys(weights: object, axis: object, stack: Stack) -> TypeGuard[Tensor]:
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
