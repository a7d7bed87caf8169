"""The attentions that a watch recorded, with their calls, and the reasons for those that it did not see."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

import torch
from torch import Tensor

from regard.attention.versions import AFTER
from regard.watching import running
from regard.watching.captured import Captured, CapturedCall, DeferredCall, Selection
from regard.watching.errors import WatchError
from regard.watching.generation import CachedGeneration
from regard.watching.passes import DecoderPasses
from regard.watching.readings import Projected
from regard.watching.running import Stack
from regard.watching.table import EmbeddingCall

NOTHING = "the watch has seen no attention"
NOT_RUN = (
    "run the model inside the `with` block, in the same thread, and run the model itself, not the"
    " result of torch.compile"
)
NOT_CALLED = (
    "the model ran, but called no attention function that a watch knows; if its own code computes"
    " attention, add regard.declare(query, key, ...) there"
)
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

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.call.captured().shape

    @cached_property
    def hides_later_keys(self) -> bool:
        """Whether a mask does, also if keys were overwritten since."""
        return self.call.captured().looks_back()

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
    projected: Projected | None = None  # the layer that read its output, where values are kept
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
        if self.crossing or running.CROSSING.search(self.path):
            return True
        if not self.calls:
            return False
        call = self.calls[-1]
        if isinstance(call, CachedGeneration) and call.tokens > 1 < call.shape[-1]:
            return call.repeats and not self.in_one_memory
        if self.reads_another is False:
            return False
        if self.reads_another:
            return not _looks_back(call)
        return not any(map(_looks_back, self.calls)) and self._differs(call)

    def _differs(self, call: Record) -> bool:
        """Whether the numbers of queries and keys differ, and no cache grows from call to call."""
        try:
            arguments = call.captured()
        except WatchError:
            return False
        queries, keys = arguments.shape[-2:]
        if arguments.rows is not None or queries == keys:
            return False
        return queries > 1 or len({each.shape[-1] for each in self.calls}) == 1

    @property
    def name(self) -> str:
        return running.short(self.path, "cross" if self.kind == "cross" else "self")

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
        call = call.selected(Selection(gradients=selection.gradients, values=selection.values))
        previous = self.calls[-1] if self.calls else None
        if isinstance(previous, CachedGeneration):
            if previous.takes(call):
                return
            previous.seal()
        prompt: Tensor | None = None
        if isinstance(previous, RecordedCall) and not selection.changes:
            prompt = previous.call.key if isinstance(previous.call, CapturedCall) else None
        self.calls.append(CachedGeneration(self.path, call, prompt, selection, passes))


def _looks_back(call: Record, also: bool = False) -> bool:
    """Whether a mask hides later keys, or `also`; False if the call cannot be read."""
    try:
        if isinstance(call, RecordedCall):
            return call.hides_later_keys or also
        return call.captured().looks_back() or also
    except WatchError:
        return False


class Recording:
    """The attentions that a watch recorded, by path, and the reasons why others are missing."""

    def __init__(
        self, model: str, selection: Selection, passes: DecoderPasses | None, budget: int | None
    ) -> None:
        self.model = model  # the name of its class
        self.selection, self.passes, self.budget = selection, passes, budget
        self.records: dict[str, AttentionRecord] = {}
        self.unseen: dict[str, str] = {}
        self.excluded: dict[str, None] = {}  # paths that the `layers` argument excluded
        self.embedded: list[EmbeddingCall] = []
        self.ran = False  # whether a module of the model was called
        self._storages: dict[Record, dict[tuple[int, int], int]] = {}

    def add(self, path: str, call: Captured, stack: Stack) -> None:
        """Record a call of the attention that is running."""
        frame = stack[-1]
        record = self.records.get(path) or AttentionRecord(path)
        record.crossing = record.crossing or running.named_across(stack)
        record.in_one_memory = frame.in_one_memory
        if frame.crosses is not None:
            record.reads_another = record.reads_another or frame.crosses
        record.unbatched = isinstance(call, CapturedCall) and _is_unbatched(stack, call)
        record.keep(call, self.selection, self.passes)
        self.records[path] = record
        if self.budget is not None:
            for changed_call in record.calls[-2:]:  # the one before may have become smaller
                self._storages[changed_call] = storages(changed_call.tensors())

    def check_budget(self, budget: int, excluded: Iterable[Tensor]) -> None:
        """Raise WatchError if the memory is used up. Memory that several tensors share counts once."""
        used = storages(excluded)
        for tensors in self._storages.values():
            used |= tensors
        if sum(used.values()) >= budget:
            raise WatchError(f"the memory of {budget:,} bytes was used up before it")

    def seal(self) -> None:
        """Keep only the selected part of each generation, because the watch ends."""
        for record in self.records.values():
            if isinstance(record.calls[-1], CachedGeneration):
                record.calls[-1].seal()

    def by_name(self) -> dict[str, AttentionRecord]:
        """Short names; paths for attentions that share a short name."""
        if not self.records:
            raise WatchError(self.objection())
        sharing: dict[str, list[AttentionRecord]] = {}
        for record in self.records.values():
            sharing.setdefault(record.name, []).append(record)
        return {
            name if len(records) == 1 else record.path: record
            for name, records in sharing.items()
            for record in records
        }

    def find(self, name: str) -> AttentionRecord | None:
        """The attention of a name or path; None if there is none."""
        names = self.by_name()
        if name in names:
            return names[name]
        as_self = name.removesuffix(".causal") + ".self" if name.endswith(".causal") else name
        for record in self.records.values():
            if name == record.path or (record.name in (name, as_self) and record.name in names):
                return record
        return None

    def record(self, name: str) -> AttentionRecord:
        """The attention of a name or path.

        Raises:
            KeyError: there is none.
            WatchError: it was not seen.
        """
        record = self.find(name)
        if record is not None:
            return record
        names = list(self.by_name())
        if name in self.unseen:
            raise WatchError(f"{name} was not seen: {self.unseen[name]}")
        close = get_close_matches(name, names, 5, 0.4) or names[:5]
        raise KeyError(f"no attention {name!r} was seen; there are {len(names)}, such as {close}")

    def objection(self) -> str:
        """Why no attention was seen."""
        if self.excluded and not self.unseen:
            paths = ", ".join([path or "the model" for path in self.excluded][:5])
            return f"{NOTHING} that matches layers=; attentions that do not match: {paths}"
        if self.unseen:
            return f"{NOTHING}: {'; '.join(self.reasons())}"
        return f"{NOTHING}: {NOT_CALLED if self.ran else NOT_RUN}"

    def reasons(self) -> list[str]:
        """A line for each attention that was not seen."""
        return [f"{path or 'the model'}: {why}" for path, why in self.unseen.items()]

    def warn(self) -> None:
        """Warn if an attention was not seen."""
        if not self.records:
            warnings.warn(self.objection(), RuntimeWarning, stacklevel=3)
        elif self.unseen:
            reasons = "; ".join(self.reasons())
            warnings.warn(f"not everything was seen: {reasons}", RuntimeWarning, stacklevel=3)


def _is_unbatched(stack: Stack, call: CapturedCall) -> bool:
    """Whether projections read (queries, width), without a batch axis."""
    shapes = [read[1] for module in stack[-2:] for read in module.read if isinstance(read, tuple)]
    return any(len(shape) == 2 and shape[0] == call.query.shape[-2] for shape in shapes)


def storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each storage of the tensors, by its address and size."""
    strided = (tensor.values() if tensor.is_nested else tensor for tensor in tensors)
    memories = (tensor.untyped_storage() for tensor in strided)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}
