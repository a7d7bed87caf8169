"""`with regard.change(model, {...}):` runs a model with edited attention weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.by_name import not_callable
from regard.attention.looks import Look
from regard.watching.edits import Edit
from regard.watching.errors import WatchError
from regard.watching.interception import begin, end
from regard.watching.paths import exactly, in_tower, matches, short
from regard.watching.running import CROSSING, Observer, RunningModule, Stack, reports_suppressed
from regard.watching.watch import add_compiled

OnWeights = Callable[[Tensor], Tensor]
Edits = Edit | OnWeights | Sequence[Edit | OnWeights]


def change(model: nn.Module, edits: Mapping[str, Edits]) -> Change:
    """Run a model with edited attention: heads switched off, weights set, sharpened or replaced.

    It changes the attentions that `regard.watch` sees. Edits of weights come before those of outputs.

    Where weights are edited, they are computed as a
    matrix, which `weights` of the change returns; dropout is not applied to them. A `watch` that is open at the same
    time sees the queries and keys of an edited attention, that is its weights before the edit.

    Args:
        model: any module that can be watched.
        edits: by the name of an attention, its path, or a pattern such as "decoder.*.cross": an edit of
            `regard.edits`, a function of weights (*batch, heads, queries, keys), or several, applied in order.

    Returns:
        A context manager.

    Raises:
        WatchError: a name matched no attention that ran (when the block ends), or an edited attention computes its
            weights in code of its own.

    Example:
        >>> import torch, regard
        >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> with regard.change(model, {"self": regard.edits.Scale(0.0)}):
        ...     output, _ = model(x, x, x)
        >>> torch.equal(output, model.out_proj.bias.expand(1, 5, 8))
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: pass the torch.nn.Module to change")
    if not isinstance(edits, Mapping):
        raise not_callable("edits", edits, 'a mapping of names to edits, such as {"*": edit}')
    return Change(model, {name: _as_sequence(name, each) for name, each in edits.items()})


class FastPaths:
    """Torch's fast paths of attention, shut while a change of any thread is open.

    Each is one operator from the input of a layer to its output, so that no weights can be edited in it.
    """

    def __init__(self) -> None:
        self._lock, self._changes, self._enabled = Lock(), 0, True

    def suspend(self) -> None:
        with self._lock:
            if not self._changes:
                self._enabled = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._changes += 1

    def resume(self) -> None:
        """End one change; the last one restores what was before."""
        with self._lock:
            self._changes -= 1
            if not self._changes:
                torch.backends.mha.set_fastpath_enabled(self._enabled)


FAST_PATHS = FastPaths()


class Change(Observer):
    """The context manager that `change` returns. It can be entered once."""

    def __init__(self, model: nn.Module, edits: Mapping[str, Sequence[Edit | OnWeights]]) -> None:
        self.model, self._edits = model, edits
        self._matched: set[str] = set()
        self._known: set[str] = set()
        self._ran: set[str] = set()  # paths of attentions
        self._running: dict[str, _Edited] = {}  # by path

    def __enter__(self) -> Change:
        begin(self)
        FAST_PATHS.suspend()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        FAST_PATHS.resume()
        end(self)
        if kind is not None:
            return
        compiled: dict[str, str] = {}
        add_compiled(compiled, dict(self.model.named_modules()), self._ran, self.graphs)
        reasons = "".join(f"; {path or 'the model'} {why}" for path, why in compiled.items())
        missing = [name for name in self._edits if name not in self._matched]
        if missing:
            ran = ", ".join(sorted(self._known)) or "none"
            raise WatchError(
                f"no attention matched {', '.join(map(repr, missing))}; attentions that ran: {ran}{reasons}"
            )
        if any(matches(path, path, pattern) for path in compiled for pattern in self._edits):
            warnings.warn(f"not everything was changed{reasons}", RuntimeWarning, stacklevel=2)

    def attention_computed(self, path: str, stack: Stack, capture: Callable[[], Any]) -> None:
        """An attention ran unchanged: note its name; raise if it should have been changed."""
        if self._edits_of(path, stack):
            raise WatchError(
                f"{path} computes its attention in code of its own, which cannot be changed:"
                " let it call F.scaled_dot_product_attention or regard.attend"
            )

    def edit(self, path: str, stack: Stack) -> _Edited | None:
        """The edit of the attention that is running; None if there is none."""
        if not (edits := self._edits_of(path, stack)):
            return None
        if path not in self._running:
            with reports_suppressed():  # the outputs of another run are computed by regard.attend
                self._running[path] = _Edited(edits, _names(path, stack[-1]))
        return self._running[path]

    def __contains__(self, name: object) -> bool:
        """Whether an attention of this name, or path, was edited."""
        return any(name in edited.names for edited in self._running.values())

    def weights(self, name: str) -> Tensor:
        """The edited weights of an attention, (*batch, heads, queries, keys), those of several calls one below another.

        Keys that a call did not have yet, as of a cache that grows, have weight 0. The rows of a batch entry are
        those of each call: they do not follow a beam search, as the looks of a watch do.

        Raises:
            KeyError: no attention of this name, or path, was edited.
            WatchError: the calls were of batches of different sizes.
        """
        for edited in self._running.values():
            if name in edited.names:
                return _below(name, edited.weights)
        raise KeyError(f"no attention {name!r} was edited; edited were {list(self._running)}")

    def _edits_of(self, path: str, stack: Stack) -> list[Edit | OnWeights]:
        attention_names = _names(path, stack[-1])
        self._known.add(attention_names[1])
        self._ran.add(path)
        matching: list[Edit | OnWeights] = []
        for pattern, edits in self._edits.items():
            if any(matches(path, name, pattern) for name in attention_names):
                self._matched.add(pattern)
                matching += edits
        return matching


def _names(path: str, frame: RunningModule) -> list[str]:
    """The path of an attention, its short names, and the pattern of it alone."""
    crosses = bool(CROSSING.search(path)) or frame.crosses_by_name or frame.crosses
    kinds = ["self", "causal"] * (not crosses) + ["cross"] * (crosses is not False)
    short_names = [name(path, kind) for name in (short, in_tower) for kind in kinds]
    return [path, *short_names, exactly(path)]


class _Edited:
    """The edits of one attention, and the weights that they gave."""

    def __init__(self, edits: Sequence[Edit | OnWeights], names: list[str]) -> None:
        bound = [each.bound(names) if isinstance(each, Edit) else each for each in edits]
        self._of_outputs = [each for each in bound if isinstance(each, Edit) and each.edits_outputs]
        self._of_weights = [each for each in bound if each not in self._of_outputs]
        self._queries, self._start, self.names = 0, 0, names
        self._planes: list[Tensor | Look] = []

    @property
    def edits_weights(self) -> bool:
        return bool(self._of_weights)

    @property
    def edits_outputs(self) -> bool:
        return bool(self._of_outputs)

    @property
    def weights(self) -> list[Tensor]:
        """Those of each call; those of edited outputs alone are computed here."""
        planes = [x if isinstance(x, Tensor) else x.weights().detach() for x in self._planes]
        return [each if each.ndim > 3 else each.unsqueeze(-3) for each in planes]

    def unedited(self, look: Look) -> None:
        self._start, self._queries = self._queries, self._queries + look.shape[-2]
        self._planes.append(look)

    def of_weights(self, weights: Tensor) -> Tensor:
        self._start, self._queries = self._queries, self._queries + weights.shape[-2]
        for edit in self._of_weights:
            edited = edit(weights, self._start) if isinstance(edit, Edit) else edit(weights)
            if not isinstance(edited, Tensor) or edited.shape != weights.shape:
                returned = (
                    list(edited.shape)
                    if isinstance(edited, Tensor)
                    else f"a {type(edited).__name__}"
                )
                raise WatchError(
                    f"an edit of {self.names[1]} returned {returned}: return weights of shape {list(weights.shape)}"
                )
            weights = edited
        self._planes.append(weights.detach())
        return weights

    def of_outputs(self, outputs: Tensor) -> Tensor:
        """The edited outputs of the heads, after their weights were edited."""
        for edit in self._of_outputs:
            outputs = edit(outputs, self._start)
        return outputs


def _below(name: str, calls: Sequence[Tensor]) -> Tensor:
    if len({weights.shape[:-2] for weights in calls}) > 1:
        raise WatchError(f"{name} ran with batches of different sizes: change one call at a time")
    keys = max(weights.shape[-1] for weights in calls)
    return torch.cat([F.pad(weights, (0, keys - weights.shape[-1])) for weights in calls], -2)


def _as_sequence(name: str, edits: Edits) -> Sequence[Edit | OnWeights]:
    sequence = edits if isinstance(edits, Sequence) else [edits]
    for item in sequence:
        if isinstance(item, type) or not callable(item):
            example = "one of regard.edits, or a function of weights"
            raise not_callable(f"the edit of {name!r}", item, example)
    return sequence
