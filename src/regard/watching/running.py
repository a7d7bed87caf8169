"""The stack of running modules, innermost last, their names, and the watches that observe them.

Each thread and task has its own stack and watches. The hooks are torch's global ones, because a
hook on a module turns off the fast path of nn.TransformerEncoderLayer.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention.looks import Look
from regard.loops.availability import transformed
from regard.watching.steps import Site, call_site, grows

PROJECTION = re.compile("linear|conv1d|dense", re.IGNORECASE)
CROSSING = re.compile(r"cross|encoder_attn|enc_?dec|multihead_attn$|(^|\.)src_attn", re.IGNORECASE)
# An input of a projection: its memory and shape, or a name.
Read = str | tuple[int, tuple[int, ...]]


class Step(NamedTuple):
    """The last call with one query from a place in the code: the number of its attention, the shape
    of its query, and its key."""

    attention: int
    crosses: bool | None
    shape: torch.Size
    key: Tensor


@dataclass(slots=True)
class RunningModule:
    """A running module, its attentions, and the inputs of its projections.

    `number` is its number among the calls of modules of its class by its parent. `attention` is the
    number of its running attention: the steps of a loop are one attention. `crosses` is whether
    that reads another sequence, as far as its tensors tell, `crosses_by_name` whether the name of its
    class says so, and `in_one_memory` whether its queries and keys are one tensor.
    """

    module: nn.Module
    number: int = 0
    inputs: set[int] = field(default_factory=set)  # where the memory of its arguments begins
    attention: int = 0
    attentions: int = 0
    reports: int = 0
    crosses: bool | None = None
    crosses_by_name: bool = False
    in_one_memory: bool = False
    steps: dict[Site, Step] = field(default_factory=dict)
    read: set[Read] = field(default_factory=set)
    children: Counter[str] = field(default_factory=Counter)


Stack = tuple[RunningModule, ...]


class Edit(Protocol):
    """The edits of an attention that is running. Edits of outputs come after those of weights."""

    @property
    def edits_weights(self) -> bool: ...

    @property
    def edits_outputs(self) -> bool: ...

    def unedited(self, look: Look) -> None:
        """Note the weights of a call whose outputs alone are edited."""
        ...

    def of_weights(self, weights: Tensor) -> Tensor:
        """The edited weights (*batch, heads, queries, keys)."""
        ...

    def of_outputs(self, outputs: Tensor) -> Tensor:
        """The edited outputs of heads, (*batch, heads, queries, d_value)."""
        ...


class Edits(NamedTuple):
    """The edits of all open changes, in order."""

    edits: Sequence[Edit]
    weights: Tensor | None = None  # those that an enclosing attention edited

    @property
    def edits_weights(self) -> bool:
        return self.weights is not None or any(each.edits_weights for each in self.edits)

    @property
    def edits_outputs(self) -> bool:
        return any(each.edits_outputs for each in self.edits)

    def unedited(self, look: Look) -> None:
        for edit in self.edits:
            edit.unedited(look)

    def of_weights(self, weights: Tensor) -> Tensor:
        if self.weights is not None:
            return self.weights
        return _with_heads(weights, [each.of_weights for each in self.edits])

    def of_outputs(self, outputs: Tensor) -> Tensor:
        return _with_heads(outputs, [each.of_outputs for each in self.edits])


def _with_heads(plane: Tensor, edits: Iterable[Callable[[Tensor], Tensor]]) -> Tensor:
    """A plane of weights or outputs after these edits. One of three axes is of one head."""
    edited = plane if plane.ndim > 3 else plane.unsqueeze(-3)
    for edit in edits:
        edited = edit(edited)
    return edited if plane.ndim > 3 else edited.squeeze(-3)


class Observer:
    """A watch or a change of a model, which is called when modules and attentions of the model run.

    It can be opened once. One that never was opened warns when it is dropped.

    Attributes:
        graphs: paths of modules that called graphs of torch.compile with attention. Which module it is of is not known.
    """

    model: nn.Module
    graphs: set[str]
    is_open = was_opened = False
    _paths: dict[int, str]  # of the registered modules, by identity

    def __del__(self) -> None:
        if not self.was_opened:
            called = type(self).__name__.lower()
            text = f"regard.{called}(...) did nothing: write `with regard.{called}(...):` around the calls"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def begin(self) -> None:
        self._paths = {id(module): path for path, module in self.model.named_modules()}
        self.is_open = self.was_opened = True
        self.graphs = set()
        _observers.set((*(each for each in _observers.get() if each.is_open), self))

    def end(self) -> None:
        """Remove it. One that ends in another context stays listed, with `is_open` False."""
        self.is_open = False
        _observers.set(tuple(each for each in _observers.get() if each is not self))
        if not _observers.get():
            _stack.set(())

    def path(self, stack: Stack) -> str | None:
        """The path of the running module; None if it is outside of the model.

        torch does not register the layers of a Keras functional model, nor modules in an ordinary list
        or dictionary. Such a module is named after the attribute that holds it ("blocks.0"), else after
        its own `name`, else after its class and its number among the calls of that class.
        """
        if not stack:
            return None
        registered = self._paths.get(id(stack[-1].module))
        if registered is not None:
            return registered
        outer = self.path(stack[:-1])
        if outer is None:
            return None
        name = _name(stack[-1], stack[-2].module)
        return f"{outer}.{name}" if outer else name

    def module_entered(self, path: str, stack: Stack, arguments: object) -> None:
        """Called when a module begins to run, the last of the stack."""

    def edit(self, path: str, stack: Stack) -> Edit | None:
        """The edit of the attention that is running; None if there is none."""
        return None

    def attention_computed(self, path: str, stack: Stack, capture: Callable[[], Any]) -> None:
        """Called when an attention has run that was not edited; `capture()` returns the captured call."""

    def softmax_computed(self, path: str, stack: Stack, weights: object, axis: object) -> None:
        """Called when a softmax has run outside of known attention functions."""


def _name(frame: RunningModule, owner: nn.Module) -> str:
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if value is frame.module:
            return name
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        for key, module in value.items() if isinstance(value, dict) else ():
            if module is frame.module:
                return f"{name}.{key}"
    label = getattr(frame.module, "name", None)
    if isinstance(label, str) and label:
        return label
    return f"{type(frame.module).__name__}_{frame.number}"


_stack: ContextVar[Stack] = ContextVar("stack", default=())
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_suppressed: ContextVar[bool] = ContextVar("suppressed", default=False)
_edit: ContextVar[Edit | None] = ContextVar("edit", default=None)


def _observing(stack: Stack) -> list[tuple[Observer, str]]:
    """The open watches and changes whose model has the running module, with its path there."""
    observing = []
    for observer in _observers.get():
        path = observer.path(stack) if observer.is_open else None
        if path is not None:
            observing.append((observer, path))
    return observing


def _attending(stack: Stack) -> list[tuple[Observer, str]]:
    """The same with the path of the running attention: with its number, where it is not the first of the module."""
    number = stack[-1].attention
    return [(each, f"{path}#{number}" if number else path) for each, path in _observing(stack)]


def is_observed() -> bool:
    """Whether an attention computed now has to be reported."""
    return bool(_stack.get()) and bool(_observers.get()) and not _suppressed.get()


def attention_begins(arguments: Sequence[object], named: Mapping[str, object]) -> None:
    """Note the number of the attention that begins, and whether its keys are of another sequence.

    Args:
        arguments: those of the attention function, a module perhaps, and query, key and value.
        named: those that were passed by name.
    """
    if _edit.get() is not None:  # the enclosing attention is reported as a whole
        return
    skipped = bool(arguments) and isinstance(arguments[0], nn.Module)
    positional = (*arguments[skipped:], None, None, None)
    query, key, value = (
        named.get(name, positional[at]) for at, name in enumerate(("query", "key", "value"))
    )
    stack = _stack.get()
    frame = stack[-1]
    projecting = _projecting(stack)
    frame.attention, frame.in_one_memory = frame.attentions, False
    frame.crosses = None if projecting is None else len(projecting.read) > 1
    frame.crosses_by_name = _is_named_cross(stack)
    if not (_address(query) and _address(key)) or transformed():
        return
    assert isinstance(query, Tensor)
    assert isinstance(key, Tensor)
    memories = (each.untyped_storage().data_ptr() for each in (query, key))
    frame.in_one_memory = len(set(memories)) == 1
    frame.crosses = not frame.in_one_memory and _crosses(stack, query, key, value)
    if query.ndim < 2 or query.shape[-2] != 1 or key.ndim < 2:
        return
    site = call_site()
    previous = frame.steps.get(site)
    if previous is not None and previous.shape == query.shape:
        old_key = previous.key
        if grows(old_key, old_key[..., -1:, :], old_key.shape[-2], key) is not None:
            frame.attention, frame.crosses = previous.attention, previous.crosses
    frame.steps[site] = Step(frame.attention, frame.crosses, query.shape, key)


def _crosses(stack: Stack, query: Tensor, key: Tensor, value: object) -> bool | None:
    """Whether queries and keys in two memories are of two sequences; None if they do not tell.

    They are of one if they are projections of one tensor. They are of two if one is projected and
    the other is a tensor that the module was passed. Without projections they are of two if the
    keys are the values, and the model was passed them and the queries, or the module was passed
    them for a single query.
    """
    sides = {_address(query), _address(key)}
    projecting = _projecting(stack)
    if projecting is not None:
        projected = {each[0] for each in projecting.read}
        return len(projecting.read) > 1 or bool(sides & (projecting.inputs - projected))
    if _address(key) != _address(value):
        return None
    alone = query.ndim > 1 < key.ndim and query.shape[-2] == 1 < key.shape[-2]
    crosses = sides <= stack[0].inputs or (alone and _address(key) in stack[-1].inputs)
    return True if crosses else None


def _address(tensor: object) -> int:
    """Where the memory of a tensor begins; 0 if it has none that can be compared."""
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided or tensor.is_nested:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor of a transform or trace
        return 0


def report_attention(capture: Callable[[], Any], edited: bool = False) -> None:
    """Report an attention to the watches; `capture()` returns the captured call.

    Changes receive only attentions that were not edited.
    """
    if _edit.get() is not None:  # the enclosing attention is reported as a whole
        return
    stack = _stack.get()
    for observer, path in _attending(stack):
        if not (edited and observer.edit(path, stack)):
            observer.attention_computed(path, stack, capture)
    stack[-1].reports += 1
    stack[-1].attentions = max(stack[-1].attentions, stack[-1].attention + 1)


def module() -> nn.Module:
    """The running module."""
    return _stack.get()[-1].module


def reports() -> int:
    """How many attentions of the running module were reported."""
    return _stack.get()[-1].reports


def edit() -> Edit | None:
    """The edit of the attention that is running, by all open changes; None if there is none."""
    if (enclosing := _edit.get()) is not None:
        return enclosing
    stack = _stack.get()
    changes = (observer.edit(path, stack) for observer, path in _attending(stack))
    edits = [change for change in changes if change is not None]
    return Edits(edits) if edits else None


def _is_named_cross(stack: Stack) -> bool:
    """Whether the class name of the module or of its parent says cross attention."""
    kinds = (kind.__name__ for frame in stack[-2:] for kind in type(frame.module).__mro__)
    return any(CROSSING.search(name) for name in kinds)


def _projecting(stack: Stack) -> RunningModule | None:
    return next((each for each in reversed(stack[-2:]) if each.read), None)


def report_graph() -> None:
    """Report an attention of a compiled graph."""
    for observer, path in _observing(_stack.get()):
        observer.graphs.add(path)


def report_softmax(weights: object, axis: object) -> None:
    """Report a softmax outside of known attention functions."""
    stack = _stack.get()
    for observer, path in _observing(stack):
        observer.softmax_computed(path, stack, weights, axis)


def mark_two_inputs() -> None:
    """Note that the running module reads two sequences."""
    if is_observed():
        _stack.get()[-1].read |= {"query", "key"}


def reports_suppressed() -> AbstractContextManager[None]:
    """Report nothing inside: the enclosing attention is reported as a whole."""
    return _with(_suppressed, True)


def weights_are(weights: Tensor) -> AbstractContextManager[None]:
    """Use these weights in the attention inside, and the edits of outputs of the enclosing one."""
    enclosing = edit()
    return _with(_edit, Edits([] if enclosing is None else [enclosing], weights))


@contextmanager
def _with(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def enter(module: nn.Module, arguments: object) -> None:
    """The hook of torch that runs before a module."""
    if torch.compiler.is_compiling() or not _observers.get():
        return
    stack = _stack.get()
    if stack and PROJECTION.search(type(module).__name__):
        _note(stack[-1], arguments)
    kind = type(module).__name__
    if stack:
        stack[-1].children[kind] += 1
    number = stack[-1].children[kind] if stack else 0
    stack = (*stack, RunningModule(module, number, _inputs(arguments)))
    for observer, path in _observing(stack):
        observer.module_entered(path, stack, arguments)
    _stack.set(stack)


def leave(module: nn.Module, arguments: object, output: object) -> None:
    """The hook of torch that runs after a module, also if it raises."""
    if torch.compiler.is_compiling():
        return
    stack = _stack.get()
    for depth in range(len(stack) - 1, -1, -1):
        if stack[depth].module is module:
            _stack.set(stack[:depth])
            return


def _inputs(arguments: object) -> set[int]:
    values = arguments if isinstance(arguments, tuple) else ()
    return {address for each in values if (address := _address(each))}


def _note(frame: RunningModule, arguments: object) -> None:
    read = arguments[0] if isinstance(arguments, tuple) and arguments else None
    if isinstance(read, Tensor) and read.layout is torch.strided and not read.is_nested:
        try:
            frame.read.add((read.data_ptr(), tuple(read.shape)))
        except RuntimeError:  # a tensor of a transform or trace has no memory
            return
