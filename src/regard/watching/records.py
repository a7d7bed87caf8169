"""The calls of one attention, as they are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.watching import names
from regard.watching.captured import CapturedCall, Selection
from regard.watching.errors import WatchError
from regard.watching.generation import CachedGeneration
from regard.watching.masks import looks_back
from regard.watching.torch_layers import Captured, DeferredCall

CHANGED = (
    "what it was computed from was changed in place after the call:"
    " watch with copy=True, which keeps queries and keys of its own"
)


class RecordedCall:
    """One call, captured or deferred. It notices when its tensors were changed in place."""

    def __init__(self, call: Captured, selection: Selection) -> None:
        if isinstance(call, DeferredCall) and selection.changes:
            call = call.captured()
        if isinstance(call, CapturedCall):
            call = call.selected(selection)
        elif not selection.gradients:
            call = call.detached()
        self._call, self._gradients = call, selection.gradients
        self._versions = [
            (each, each._version) for each in call.tensors() if not each.is_inference()
        ]

    def tensors(self) -> list[Tensor]:
        return self._call.tensors()

    @property
    def given(self) -> CapturedCall | None:
        """The call, unless it is deferred. Not checked for changes in place."""
        return self._call if isinstance(self._call, CapturedCall) else None

    @property
    def shape(self) -> tuple[int, ...]:
        if isinstance(self._call, CapturedCall):
            return self._call.shape
        return self._call.shape or self._call.captured().shape

    def captured(self) -> CapturedCall:
        """The captured call, computed if it was deferred.

        Raises:
            WatchError: its tensors were changed in place since.
        """
        if any(tensor._version != version for tensor, version in self._versions):
            raise WatchError(CHANGED)
        if isinstance(self._call, CapturedCall):
            return self._call
        with torch.set_grad_enabled(self._gradients and torch.is_grad_enabled()):
            return self._call.captured()


class RecordedGeneration:
    """One-token calls that became one."""

    def __init__(self, chain: CachedGeneration, selection: Selection) -> None:
        self.chain, self._selection = chain, selection
        self._sealed: CapturedCall | WatchError | None = None

    def tensors(self) -> list[Tensor]:
        return (
            self._sealed.tensors()
            if isinstance(self._sealed, CapturedCall)
            else self.chain.tensors()
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self._sealed.shape if isinstance(self._sealed, CapturedCall) else self.chain.shape

    def seal(self) -> None:
        """Keep what was asked for and nothing else, when no token can follow."""
        try:
            self._sealed = self.chain.captured().selected(self._selection)
        except WatchError as fault:
            self._sealed = fault

    def captured(self) -> CapturedCall:
        if self._sealed is None:
            return self.chain.captured().selected(self._selection)
        if isinstance(self._sealed, WatchError):
            raise self._sealed
        return self._sealed


@dataclass(eq=False)
class AttentionRecord:
    """An attention of a model: where it is, what it reads, and its calls."""

    path: str
    crossing: bool = False  # whether the names of its classes say that it is a cross attention
    reads_two: bool | None = None  # whether its projections read two tensors, where it has any
    unbatched: bool = False  # whether its sequences have no axis of batch entries
    calls: list[RecordedCall | RecordedGeneration] = field(default_factory=list)
    _found: tuple[int, str] | None = None
    _across: tuple[int, bool] = (0, False)

    @property
    def kind(self) -> str:
        """ "self", "cross" or "causal"."""
        if self._crosses:
            return "cross"
        if self._found is None or self._found[0] != len(self.calls):
            self._found = len(self.calls), self._direction()
        return self._found[1]

    def _direction(self) -> str:
        for call in self.calls:
            try:
                captured = call.captured()
            except WatchError:
                continue
            if isinstance(call, RecordedGeneration) and len(call.chain) > 1:
                return "causal"
            if looks_back(captured.mask, captured.query.shape[-2], captured.key.shape[-2]):
                return "causal"
            if captured.bias is not None and _bias_looks_back(captured):
                return "causal"
        return "self"

    @property
    def _crosses(self) -> bool:
        if self.crossing or names.CROSSING.search(self.path):
            return True
        if self.reads_two is False or not self.calls:
            return False
        if self._across[0] != len(self.calls):
            self._across = len(self.calls), _reads_another(self.calls[-1], self.reads_two)
        return self._across[1]

    @property
    def name(self) -> str:
        return names.short(self.path, "cross" if self._crosses else "self")

    def has_heads(self, shape: tuple[int, ...]) -> bool:
        """Whether the last batch axis of a look holds heads; a single one holds batch entries."""
        return len(shape) > 3 or (len(shape) == 3 and self.unbatched)

    def keep(
        self, call: Captured, selection: Selection, group: bool
    ) -> RecordedCall | RecordedGeneration:
        """One call more, or one token more of the last one."""
        if isinstance(call, DeferredCall) and call.crossing:
            self.reads_two = True
        if not group or isinstance(call, DeferredCall) or not CachedGeneration.begins(call):
            self.calls.append(RecordedCall(call, selection))
            return self.calls[-1]
        captured = call.selected(Selection(gradients=selection.gradients))
        last = self.calls[-1] if self.calls else None
        if isinstance(last, RecordedGeneration) and last.chain.takes(captured):
            return last
        if isinstance(last, RecordedGeneration):
            last.seal()
        prompt = last.given if isinstance(last, RecordedCall) and not selection.changes else None
        self.calls.append(RecordedGeneration(CachedGeneration(captured, prompt), selection))
        return self.calls[-1]


def _reads_another(call: RecordedCall | RecordedGeneration, reads_two: bool | None) -> bool:
    """Whether the keys are of another sequence than the queries, by the mask and the lengths.

    A mask that hides later keys, and keys that gain one with each token, are of the same sequence.
    Two tensors that projections read are two sequences otherwise; where no projection was seen,
    sequences of two lengths are.
    """
    if isinstance(call, RecordedGeneration) and len(call.chain) > 1:
        return call.chain.repeats
    try:
        captured = call.captured()
    except WatchError:
        return bool(reads_two)
    queries, keys = captured.query.shape[-2], captured.key.shape[-2]
    if looks_back(captured.mask, queries, keys) or _bias_looks_back(captured):
        return False
    return bool(reads_two) or (captured.rows is None and queries not in (1, keys))


def _bias_looks_back(captured: CapturedCall) -> bool:
    if captured.bias is None or captured.bias.ndim < 2 or captured.bias.shape[-2] == 1:
        return False
    readable = captured.bias > 0.25 * torch.finfo(captured.bias.dtype).min
    return looks_back(readable, captured.query.shape[-2], captured.key.shape[-2])


class MemoryUse:
    """How much memory the calls hold together: what several share once, what was replaced no more."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: dict[int, dict[tuple[int, int], int]] = {}
        self._holders: Counter[tuple[int, int]] = Counter()

    def count(self, call: RecordedCall | RecordedGeneration) -> None:
        """Count a call, or count it anew; calls that are counted are kept."""
        now = _storages(call.tensors())
        before = self._of.get(id(call), {})
        self._of[id(call)] = now
        for storage in now.keys() - before.keys():
            self._holders[storage] += 1
            self.bytes += now[storage] if self._holders[storage] == 1 else 0
        for storage in before.keys() - now.keys():
            self._holders[storage] -= 1
            self.bytes -= before[storage] if self._holders[storage] == 0 else 0


def _storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each memory that these hold, by where it is and how large."""
    memories = (tensor.untyped_storage() for tensor in tensors if not tensor.is_nested)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}
