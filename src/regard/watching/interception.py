"""Interception of the functions that compute attention, while a watch is open.

Each function is replaced, wherever a module holds it by name, by a wrapper that calls it and then
reports its arguments. No mode of torch is used: a TorchFunctionMode turns off the fast paths of
nn.MultiheadAttention and nn.TransformerEncoder, a TorchDispatchMode prevents the compilation of
flex_attention, and both cost time at every operator.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.watching import running
from regard.watching.captured import CapturedCall, DeferredCall
from regard.watching.errors import WatchError
from regard.watching.running import Observer

Function = Callable[..., Any]
Wrapper = Callable[[Function], Function]
WRAPPERS: dict[str, Wrapper] = {}  # by the path of the function
ORIGINALS: dict[str, Function] = {}  # of those that were registered as objects
ADAPTERS: dict[str, "Adapter"] = {}
GENERATED = "<eval_with_key>"  # in the file names of code that torch.fx generates


def register(
    function: str | Function,
    adapter: Callable[..., CapturedCall | DeferredCall],
    *,
    read: Function | None = None,
    when: Callable[..., bool] | None = None,
    weights: Callable[..., Tensor | None] | None = None,
    encloses: bool = False,
    layout: Function | None = None,
) -> None:
    """Let watches see the calls of an attention function of another library.

    Every later `regard.watch` replaces the function while it is open, wherever a module holds it.
    The functions of torch, Hugging Face and Regard are registered in this way too.

    Args:
        function: the function, or its path, such as "library.kernels.attention"; its module need not
            be imported yet. Its first tensors are queries, keys and values; a module may precede them.
        adapter: takes the arguments of the function and returns `CapturedCall(query, key, ...)`, with
            queries (*batch, heads, queries, width) and keys (*batch, key_heads, keys, width), and
            score, bias, mask and normaliser as in `regard.look`.
        read: takes the weights (*batch, heads, queries, keys) and the arguments, and returns the
            result of the function with these weights. `regard.change` needs it.
        when: takes the arguments; calls for which it returns False are not seen.
        weights: takes the result and the arguments, and returns the weights of the result or None.
            The look is checked against their last row.
        encloses: whether `read` calls another registered function, in which outputs of heads are edited.
        layout: takes edited outputs of the heads (*batch, heads, queries, d_value) and the arguments, and returns
            the result of the function. Without it, `read` lays them out, by a matrix of weights for each head.

    Raises:
        WatchError: the module is imported and has no such function.

    Example:
        >>> import torch, regard
        >>> from regard.watching import CapturedCall, register
        >>> def attention(q, k, v):
        ...     return torch.softmax(q @ k.mT, -1) @ v
        >>> def adapter(q, k, v):
        ...     return CapturedCall(q, k, score=regard.scores.Dot())
        >>> register(attention, adapter, read=lambda weights, q, k, v: weights @ v)
    """
    registered = Adapter(adapter, read, when, weights, encloses, layout)
    path = function if isinstance(function, str) else _path_of(function)
    if isinstance(function, str) or isinstance(_owner(path)[0], type):  # of a class: a method
        replace_function(path, registered.wrap)
    else:
        WRAPPERS[path], ORIGINALS[path] = registered.wrap, function
    ADAPTERS[path] = registered


def replace_function(path: str, wrapper: Wrapper) -> None:
    """Replace the function, or the method of a class, by its wrapper while a watch is open."""
    owner, name = _owner(path)
    if owner is not None and not hasattr(owner, name):
        raise WatchError(f"{path} cannot be registered: {owner.__name__} has no {name}")
    WRAPPERS[path] = wrapper


def adapter_of(function: object) -> "Adapter | None":
    """The adapter that was registered for a function."""
    return ADAPTERS.get(_path_of(function))


def _path_of(function: object) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"


def _owner(path: str) -> tuple[Any, str]:
    """The module or the class that holds a function, None if it was not imported, and its name there."""
    outer, _, name = path.rpartition(".")
    module, _, kind = outer.rpartition(".")
    return sys.modules.get(outer) or getattr(sys.modules.get(module), kind, None), name


@dataclass(frozen=True)
class Adapter:
    """The description of an attention function; the fields are the arguments of `register`."""

    call: Callable[..., CapturedCall | DeferredCall]
    read: Function | None = None
    when: Callable[..., bool] | None = None
    weights: Callable[..., Tensor | None] | None = None
    encloses: bool = False
    layout: Function | None = None

    def wrap(self, original: Function) -> Function:
        @functools.wraps(original)
        def through(*arguments: Any, **named: Any) -> Any:
            observed = not torch.compiler.is_compiling() and running.is_observed()
            caller = sys._getframe(1).f_code.co_filename if observed else ""
            # No module runs in a graph of torch.compile.
            if GENERATED in caller and not isinstance(running.module(), torch.fx.GraphModule):
                running.report_graph()
                with running.reports_suppressed():
                    return original(*arguments, **named)
            if not observed or (self.when and not self.when(*arguments, **named)):
                return original(*arguments, **named)
            running.attention_begins(arguments, named)
            edit = self.read and running.edit()
            if self.read and edit:
                result = self._read_edited(self.read, edit, arguments, named)
            else:
                with running.reports_suppressed():
                    result = original(*arguments, **named)

            def capture() -> CapturedCall | DeferredCall:
                call = self.call(*arguments, **named)
                computed = None
                if self.weights and not edit:
                    computed = self.weights(result, *arguments, **named)
                if computed is None or isinstance(call, DeferredCall):
                    return call
                return replace(call, witness=computed[..., -1:, :].detach().clone())

            running.report_attention(capture, edited=bool(edit))
            return result

        through.reports_attention = True  # type: ignore[attr-defined]
        return through

    def _read_edited(
        self, read: Function, edit: running.Edit, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """The result with edited weights, or with edited outputs of the heads."""
        call = self.call(*arguments, **named).captured()
        if self.encloses or not edit.edits_outputs:
            return read(edit.of_weights(call.look().weights()), *arguments, **named)
        outputs = edited_outputs(call, edit)
        if self.layout is not None:
            return self.layout(outputs, *arguments, **named)
        # The function reads the edited outputs as values, each query its own, so they have its layout.
        ones = torch.eye(outputs.shape[-2], dtype=outputs.dtype, device=outputs.device)
        ones = ones.expand(*outputs.shape[:-1], outputs.shape[-2])
        if "value" in named:
            return read(ones, *arguments, **{**named, "value": outputs})
        place = 2 + bool(arguments and isinstance(arguments[0], nn.Module))
        arguments = (*arguments[:place], outputs, *arguments[place + 1 :])
        return read(ones, *arguments, **named)


def edited_outputs(call: CapturedCall, edit: running.Edit) -> Tensor:
    """The outputs of the heads after the edits; without a matrix of weights where none is edited.

    Raises:
        WatchError: the values are not known.
    """
    if call.value is None:
        raise WatchError("outputs of its heads cannot be edited: its adapter has no value")
    if edit.edits_weights:
        values = call.values()
        outputs = edit.of_weights(call.look().weights()).to(values.dtype) @ values
    else:
        edit.unedited(call.look())
        with running.reports_suppressed():  # this reading is no attention of the model
            outputs = call.reading()
    return edit.of_outputs(outputs) if edit.edits_outputs else outputs


def softmax(original: Function) -> Function:
    """The wrapper of a softmax, which suggests attention in the model's own code."""

    @functools.wraps(original)
    def through(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if not torch.compiler.is_compiling() and running.is_observed():
            running.report_softmax(result, arguments[1] if len(arguments) > 1 else named.get("dim"))
        return result

    return through


replace_function("torch.softmax", softmax)
replace_function("torch.Tensor.softmax", softmax)  # F.softmax and nn.Softmax call it


class ReplacedMethod:
    """A method of a class, replaced until `remove`."""

    def __init__(self, owner: type, name: str, method: Function) -> None:
        self._owner, self._name, self._original = owner, name, vars(owner).get(name)
        setattr(owner, name, method)

    def remove(self) -> None:
        if self._original is None:  # it was inherited
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)


class Interception:
    """Starts with the first open watch of all threads and ends with the last one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._models: list[nn.Module] = []
        self._functions: dict[str, tuple[Any, Any]] = {}  # original and wrapper
        self._handles: dict[str, Any] = {}  # replaced methods, by path, and hooks
        # By the ids of namespaces: those that hold a wrapper, and how many names each module had before.
        self._holders, self._sizes = set[int](), dict[int, int]()

    def open(self, model: nn.Module) -> None:
        with self._lock:
            self._models.append(model)
            if "before" not in self._handles:
                self._handles["before"] = register_module_forward_pre_hook(running.enter)
                self._handles["after"] = register_module_forward_hook(
                    running.leave, always_call=True
                )
            new_pairs = {}
            for path, wrapper in WRAPPERS.items():
                owner, name = _owner(path)
                original = ORIGINALS.get(path) or getattr(owner, name, None)
                if original is None or path in self._functions or path in self._handles:
                    continue
                if isinstance(owner, type) and path not in ORIGINALS:
                    self._handles[path] = ReplacedMethod(owner, name, wrapper(original))
                else:
                    new_pairs[path] = original, wrapper(original)
            self._functions |= new_pairs
            if new_pairs:
                modules = imported()
                self._holders |= swap(new_pairs.values(), modules)
                # Of a later watch, those of the first: a module that came since may hold its wrappers.
                self._sizes = self._sizes or {id(names): len(names) for names in modules}
            swap(self._functions.values(), of_models([model]))

    def close(self, model: nn.Module) -> None:
        with self._lock:
            del self._models[next(i for i, each in enumerate(self._models) if each is model)]
            pairs = [(wrapper, original) for original, wrapper in self._functions.values()]
            swap(pairs, of_models([model]))
            if self._models:  # functions held by modules that other watched models share
                swap(self._functions.values(), of_models(self._models))
                return
            # A module that was imported while a watch was open took wrappers. One that has as many names as before took
            # none, so that few are searched; a wrapper that code has put into the place of something else calls on.
            swap(
                pairs,
                [
                    names
                    for names in imported()
                    if id(names) in self._holders or self._sizes.get(id(names)) != len(names)
                ],
            )
            self._functions.clear()
            self._holders.clear()
            self._sizes.clear()
            for handle in self._handles.values():
                handle.remove()
            self._handles.clear()


INTERCEPTION = Interception()


@contextmanager
def intercepted(model: nn.Module) -> Iterator[None]:
    """Intercept once for all watches and changes inside, which then begin and end in less time."""
    INTERCEPTION.open(model)
    try:
        yield
    finally:
        INTERCEPTION.close(model)


def begin(observer: Observer) -> None:
    """Open a watch or a change."""
    INTERCEPTION.open(observer.model)
    observer.begin()


def end(observer: Observer) -> None:
    """Close a watch or a change."""
    INTERCEPTION.close(observer.model)
    observer.end()


def imported() -> list[dict[str, Any]]:
    """The namespaces of all imported modules."""
    namespaces = (getattr(module, "__dict__", None) for module in list(sys.modules.values()))
    return [names for names in namespaces if type(names) is dict]


def of_models(models: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """The namespaces of the models' modules."""
    return [vars(module) for model in models for module in model.modules()]


def swap(pairs: Iterable[tuple[Any, Any]], namespaces: Iterable[dict[str, Any]]) -> set[int]:
    """Replace objects in these namespaces and in those of the functions; returns the ids of the ones that held any."""
    table = {id(old): (old, new) for old, new in pairs}
    globals_ = [
        getattr(function, "__globals__", {}) for pair in table.values() for function in pair
    ]
    holders = set()
    for names in (*namespaces, *globals_):
        if table.keys().isdisjoint(map(id, names.values())):
            continue
        holders.add(id(names))
        for name, value in list(names.items()):
            if id(value) in table:
                names[name] = table[id(value)][1]
    return holders
