"""The attentions that a watch recorded, with their calls, and the reasons for those that it did not see."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from weakref import ref

import torch
from torch import Tensor, nn

from regard.attention.looks import Look
from regard.attention.looks.caption import Caption
from regard.loops.availability import transformed
from regard.watching.captured import (
    Captured,
    CapturedCall,
    DeferredCall,
    Description,
    RecordedCall,
    Selection,
    row_numbers,
)
from regard.watching.errors import WatchError
from regard.watching.generation import CachedGeneration
from regard.watching.passes import DecoderPasses
from regard.watching.paths import KINDS, Layers, in_tower, is_selected, short
from regard.watching.readings import Projected, output_layer
from regard.watching.running import CROSSING, PROJECTION, Stack
from regard.watching.table import EmbeddingCall
from regard.watching.unembedding import Unembedding

NOTHING = "the watch has seen no attention"
NOT_RUN = (
    "run the model inside the `with` block, in the same thread, and run the model itself, not the"
    " result of torch.compile"
)
NOT_CALLED = (
    "the model ran, but called no attention function that a watch knows; if its own code computes"
    " attention, add regard.declare(query, key, ...) there"
)
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
            self._kinds = {count: self._kind()}
        return self._kinds[count]

    def _kind(self) -> str:
        if self.crossing or CROSSING.search(self.path):
            return "cross"
        if not self.calls:
            return "self"
        *earlier, latest = self.calls
        description = _described(latest)
        hides = description is not None and description.hides_later_keys
        if isinstance(latest, CachedGeneration) and latest.tokens > 1 < latest.shape[-1]:
            crosses = latest.repeats and not self.in_one_memory
        elif self.reads_another is not None:
            crosses = self.reads_another and not hides
        else:
            differs = description is not None and description.differs
            crosses = differs and not hides and not any(map(_hides_later_keys, earlier))
            if crosses and latest.shape[-2] == 1:  # it may be a cache that grows from call to call
                crosses = len({call.shape[-1] for call in self.calls}) == 1
        if crosses:
            return "cross"
        hides = hides or (description is not None and latest.tokens > 1)
        return "causal" if hides or any(map(_steps_or_hides, earlier)) else "self"

    @property
    def name(self) -> str:
        return short(self.path, "cross" if self.kind == "cross" else "self")

    def name_in_tower(self) -> str:
        """The name with the outermost module in place of the side: "vision_model.3.self"."""
        return in_tower(self.path, "cross" if self.kind == "cross" else "self")

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


def _described(call: Record) -> Description | None:
    """The description of a call; None if it cannot be read."""
    try:
        return call.describe()
    except WatchError:
        return None


def _hides_later_keys(call: Record) -> bool:
    description = _described(call)
    return description is not None and description.hides_later_keys


def _steps_or_hides(call: Record) -> bool:
    description = _described(call)
    return description is not None and (description.hides_later_keys or call.tokens > 1)


class Followed:
    """Excluded attentions whose key caches may show in which order a decoder's entries are.

    Of those that step together two are needed: the first one tells that a pass continues the one before, and the
    last one is asked for the order. The others, and attentions whose keys stay the same, are dropped after their
    second step and are not captured again.
    """

    def __init__(self, passes: DecoderPasses) -> None:
        self._passes = passes
        self._records: dict[str, AttentionRecord] = {}
        self._stepping: set[str] = set()  # dropped, but each of their steps is in a pass
        self._constant: set[str] = set()  # dropped
        # Whether the last followed call was a step, so that those dropped after it step.
        self._steps = False

    def tensors(self) -> list[Tensor]:
        """All tensors that are kept."""
        return [
            tensor
            for record in self._records.values()
            for call in record.calls
            for tensor in call.tensors()
        ]

    def add(self, path: str, capture: Callable[[], Captured]) -> None:
        """Follow a call of an excluded attention. Its errors are of no interest."""
        if path in self._stepping:
            if self._steps:
                self._passes.step(path)
        elif path not in self._constant:
            self._steps = False
            with suppress(Exception), torch.no_grad():
                call = capture()
                if isinstance(call, CapturedCall) and CachedGeneration.begins(call):
                    self._steps = True
                    self._step(path, call)

    def _step(self, path: str, call: CapturedCall) -> None:
        nothing = call.query.new_empty(*call.query.shape[:-1], 0)  # the keys alone show an order
        record = self._records.setdefault(path, AttentionRecord(path))
        record.keep(replace(call, query=nothing, witness=None), Selection(), self._passes)
        del record.calls[:-1]
        generation = record.calls[0]
        if not isinstance(generation, CachedGeneration) or generation.tokens < 2:
            return
        if generation.is_constant:
            self._constant.add(path)
            del self._records[path]
            return
        alike = {
            path_between: cache
            for path_between, each in self._records.items()
            if isinstance(cache := each.calls[0], CachedGeneration) and generation.steps_with(cache)
        }
        for path_between in list(alike)[1:-1]:
            self._passes.remove(alike[path_between])
            self._stepping.add(path_between)
            del self._records[path_between]


class Recording:
    """The attentions that a watch recorded, by path, and the reasons why others are missing."""

    def __init__(
        self,
        module: nn.Module,
        layers: Layers,
        selection: Selection,
        budget: int | None,
        group: bool,
    ) -> None:
        self.model = type(module).__name__
        self.module = ref(module)  # None once nobody else keeps the model
        self.selection = selection
        self.records: dict[str, AttentionRecord] = {}
        self.unseen: dict[str, str] = {}
        self.excluded: dict[str, None] = {}  # paths that `layers` excluded
        self.embedded: list[EmbeddingCall] = []
        self.unembedding: Unembedding | None = None
        self.ran = False  # whether a module of the model was called
        self._layers, self._budget = layers, budget
        self._passes = DecoderPasses() if group else None
        self._followed = None if self._passes is None else Followed(self._passes)
        self._unread: AttentionRecord | None = None  # whose output no layer has read yet
        self._storages: dict[Record, dict[tuple[int, int], int]] = {}

    def add(self, path: str, stack: Stack, capture: Callable[[], Captured]) -> None:
        """Record a call of the attention that is running, or follow it if `layers` excludes it."""
        if self._layers is not None and not is_selected(path, self._layers):
            self.excluded.setdefault(path)
            if self._followed is not None and not transformed():
                self._followed.add(path, capture)
            return
        if transformed():
            raise WatchError("it runs under torch.func or a trace, where tensors have no values")
        if self._budget is not None:
            self._check_budget(self._budget)
        with torch.set_grad_enabled(self.selection.gradients and torch.is_grad_enabled()):
            call = capture()
            within = call.within if isinstance(call, DeferredCall) else ""
            if within:
                module, mark, number = path.partition("#")
                path = f"{module}.{within}".removeprefix(".") + mark + number
            record = self._keep(path, stack, call)
        if self.selection.values:
            layer = output_layer(stack[-1].module, within)
            record.projected = None if layer is None else Projected(layer)
            self._unread = record if layer is None else None

    def note_projection(self, module: nn.Module, arguments: object) -> None:
        """Note a module that begins to run: the next projection after an attention may be that of its output."""
        if self._unread is None or not PROJECTION.search(type(module).__name__):
            return
        record, self._unread = self._unread, None
        states = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if not isinstance(states, Tensor) or states.ndim < 2 or states.is_nested or transformed():
            return
        rows = row_numbers(self.selection.rows, states.shape[-2])
        if rows:
            record.projected = Projected(module, states[..., rows[-1], :].detach().clone())

    def _keep(self, path: str, stack: Stack, call: Captured) -> AttentionRecord:
        frame = stack[-1]
        record = self.records.get(path) or AttentionRecord(path)
        record.crossing = record.crossing or frame.crosses_by_name
        record.in_one_memory = frame.in_one_memory
        if frame.crosses is not None:
            record.reads_another = record.reads_another or frame.crosses
        record.unbatched = isinstance(call, CapturedCall) and _is_unbatched(stack, call)
        record.keep(call, self.selection, self._passes)
        self.records[path] = record
        if self._budget is not None:
            for changed_call in record.calls[-2:]:  # the one before may have become smaller
                self._storages[changed_call] = storages(changed_call.tensors())
        return record

    def _check_budget(self, budget: int) -> None:
        """Raise WatchError if the memory is used up. Memory that several tensors share counts once."""
        used = storages(self._followed.tensors() if self._followed else [])
        for tensors in self._storages.values():
            used |= tensors
        if sum(used.values()) >= budget:
            raise WatchError(f"the memory of {budget:,} bytes was used up before it")

    def seal(self) -> None:
        """Keep only the selected part of each generation, because the watch ends."""
        self._followed = None
        for record in self.records.values():
            if isinstance(record.calls[-1], CachedGeneration):
                record.calls[-1].seal()

    def by_name(self) -> dict[str, AttentionRecord]:
        """Short names in the order of the calls; names of towers, or paths, where several share a short name."""
        if not self.records:
            raise WatchError(self.objection())
        records = list(self.records.values())
        names = [record.name for record in records]
        for name_of in (AttentionRecord.name_in_tower, lambda record: record.path):
            counts = Counter(names)
            pairs = zip(records, names, strict=True)
            names = [name_of(record) if counts[name] > 1 else name for record, name in pairs]
        return dict(zip(names, records, strict=True))

    def title(self, record: AttentionRecord) -> str:
        """The model and the name of an attention."""
        names = [name for name, named in self.by_name().items() if named is record]
        return ": ".join([self.model] * bool(self.model) + names)

    def look(
        self, record: AttentionRecord, call: CapturedCall, heads: tuple[int, ...] | None
    ) -> Look:
        """The look at a call, with a caption of model, attention and heads."""
        positions = call.rows if record.kind == "cross" else call.places()
        look = call.look()
        shape = look.shape
        axes: list[Sequence[int]] = [*map(range, shape[:-2])]
        headed = record.has_heads(shape)
        if headed and heads is not None:
            axes[-1] = heads
        look.caption = Caption(self.title(record), tuple(axes), headed, positions)
        return look

    def find(self, name: str) -> AttentionRecord | None:
        """The attention of a name or path; None if there is none."""
        if name.rpartition(".")[2] not in KINDS:  # a path: every short name ends with its kind
            return self.records.get(name)
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


def storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each storage of the tensors, by its address and size."""
    strided = (tensor.values() if tensor.is_nested else tensor for tensor in tensors)
    memories = (tensor.untyped_storage() for tensor in strided)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}


def _is_unbatched(stack: Stack, call: CapturedCall) -> bool:
    """Whether projections read (queries, width), without a batch axis."""
    shapes = [read[1] for module in stack[-2:] for read in module.read if isinstance(read, tuple)]
    return any(len(shape) == 2 and shape[0] == call.query.shape[-2] for shape in shapes)
