"""Records of attentions: the calls of each, and the memory that their tensors use."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attention.versions import AFTER
from regard.watching import names
from regard.watching.captured import CapturedCall, Selection
from regard.watching.errors import WatchError
from regard.watching.generation import CachedGeneration
from regard.watching.passes import DecoderPasses
from regard.watching.torch_layers import Captured, DeferredCall

CHANGED = f"its queries or keys were {AFTER}: pass copy=True to watch, which then keeps copies"


class RecordedCall:
    """One call, captured or deferred. It notices when its tensors were changed in place."""

    tokens = 1

    def __init__(self, call: Captured, selection: Selection) -> None:
        if isinstance(call, DeferredCall) and selection.changes:
            call = call.captured()
        if isinstance(call, CapturedCall):
            call = call.selected(selection)
        elif not selection.gradients:
            call = call.detached()
        self.call, self._gradients = call, selection.gradients
        self._versions = [
            (each, each._version) for each in call.tensors() if not each.is_inference()
        ]

    def tensors(self) -> list[Tensor]:
        return self.call.tensors()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.call.captured().shape

    def captured(self) -> CapturedCall:
        """The captured call, computed if it was deferred.

        Raises:
            WatchError: its tensors were changed in place since.
        """
        if any(tensor._version != version for tensor, version in self._versions):
            raise WatchError(CHANGED)
        with torch.set_grad_enabled(self._gradients and torch.is_grad_enabled()):
            return self.call.captured()


Record = RecordedCall | CachedGeneration


@dataclass(eq=False)
class AttentionRecord:
    """An attention of a model: its path and its calls."""

    path: str
    crossing: bool = False  # whether the name of its class says that it is a cross attention
    reads_another: bool | None = None  # whether its keys are of another sequence; None if unknown
    in_one_memory: bool = False  # whether queries and keys are one tensor
    unbatched: bool = False  # whether its sequences have no batch axis
    calls: list[Record] = field(default_factory=list)
    _kinds: dict[int, str] = field(default_factory=dict)  # by the number of calls

    @property
    def kind(self) -> str:
        """ "self", "cross" or "causal"."""
        count = len(self.calls)
        if count not in self._kinds:
            crosses = self._crosses()
            causal = not crosses and any(_looks_back(each, each.tokens > 1) for each in self.calls)
            self._kinds = {count: "cross" if crosses else "causal" if causal else "self"}
        return self._kinds[count]

    def _crosses(self) -> bool:
        if self.crossing or names.CROSSING.search(self.path):
            return True
        if not self.calls:
            return False
        last = self.calls[-1]
        if isinstance(last, CachedGeneration) and last.tokens > 1 < last.shape[-1]:
            return last.repeats and not self.in_one_memory
        if self.reads_another is False:
            return False
        if self.reads_another:
            return not _looks_back(last)
        return not any(map(_looks_back, self.calls)) and self._differs(last)

    def _differs(self, last: Record) -> bool:
        """Whether the numbers of queries and keys differ, and no cache grows from call to call."""
        try:
            call = last.captured()
        except WatchError:
            return False
        queries, keys = call.shape[-2:]
        if call.rows is not None or queries == keys:
            return False
        return queries > 1 or len({each.shape[-1] for each in self.calls}) == 1

    @property
    def name(self) -> str:
        return names.short(self.path, "cross" if self.kind == "cross" else "self")

    def has_heads(self, shape: tuple[int, ...]) -> bool:
        """Whether the last batch axis of a look holds heads. A single axis holds batch entries."""
        return len(shape) > 3 or (len(shape) == 3 and self.unbatched)

    def keep(self, call: Captured, selection: Selection, passes: DecoderPasses | None) -> None:
        """Add a call, or a token to the last generation. Without `passes` each call is by itself."""
        if isinstance(call, DeferredCall) and call.crossing:
            self.reads_another = True
        if passes is None or isinstance(call, DeferredCall) or not CachedGeneration.begins(call):
            self.calls.append(RecordedCall(call, selection))
            return
        call = call.selected(Selection(gradients=selection.gradients))
        last = self.calls[-1] if self.calls else None
        if isinstance(last, CachedGeneration):
            if last.takes(call):
                return
            last.seal()
        before = last.call if isinstance(last, RecordedCall) and not selection.changes else None
        prompt = before.key if isinstance(before, CapturedCall) else None
        self.calls.append(CachedGeneration(self.path, call, prompt, selection, passes))


def _looks_back(call: Record, also: bool = False) -> bool:
    """Whether a mask hides later keys, or `also`; False if the call cannot be read.

    Keys that were overwritten since do not matter.
    """
    try:
        seen = call.call if isinstance(call, RecordedCall) else call
        return seen.captured().looks_back() or also
    except WatchError:
        return False


def storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each storage of the tensors, by its address and size."""
    strided = (tensor.values() if tensor.is_nested else tensor for tensor in tensors)
    memories = (tensor.untyped_storage() for tensor in strided)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}
