"""Interception of the functions that compute attention, while a watch is open.

Each function is replaced, wherever a module holds it by name, by a wrapper that calls it and then
reports its arguments. No mode of torch is used: a TorchFunctionMode turns off the fast paths of
nn.MultiheadAttention and nn.TransformerEncoder, a TorchDispatchMode prevents the compilation of
flex_attention, and both cost time at every operator.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import nn

from regard.watching import edited, functions, huggingface, running, torch_layers
from regard.watching.running import RunningModule, Stack, StackObserver

Function = Callable[..., Any]


def attention(
    capture: Function, edited: Function | None = None, when: Function | None = None
) -> Callable[[Function], Function]:
    """Make the wrapper of a function that computes attention.

    `capture` takes its arguments; `edited` is the function with edited weights, None if it cannot be.
    """

    def wrapper(original: Function) -> Function:
        @functools.wraps(original)
        def through(*arguments: Any, **named: Any) -> Any:
            observed = not torch.compiler.is_compiling() and running.is_observed()
            if not observed or (when is not None and not when(*arguments, **named)):
                return original(*arguments, **named)
            running.attention_begins(*_tensors(arguments, named))
            edit = edited and running.edit()
            if edited and edit:
                result = edited(original, edit, *arguments, **named)
            else:
                with running.reports_suppressed():
                    result = original(*arguments, **named)
            running.report_attention(lambda: capture(*arguments, **named), edited=bool(edit))
            return result

        return through

    return wrapper


def _tensors(arguments: tuple[Any, ...], named: dict[str, Any]) -> Iterator[object]:
    """Query, key and value, the first arguments of an attention function."""
    positional = (*arguments, None, None, None)
    return (named.get(name, positional[at]) for at, name in enumerate(("query", "key", "value")))


def softmax(original: Function) -> Function:
    """The wrapper of a softmax, which suggests attention in the model's own code."""

    @functools.wraps(original)
    def through(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if not torch.compiler.is_compiling() and running.is_observed():
            running.report_softmax(result, arguments[1] if len(arguments) > 1 else named.get("dim"))
        return result

    return through


FUNCTIONS = {
    "torch.nn.functional.scaled_dot_product_attention": attention(
        functions.fused_call, edited.fused
    ),
    "torch._native_multi_head_attention": attention(torch_layers.native_call),
    "torch._transformer_encoder_layer_fwd": attention(torch_layers.encoder_layer_call),
    "torch.nn.functional.multi_head_attention_forward": attention(
        torch_layers.weighted_call, edited.weighed, torch_layers.weighs
    ),
    "torch.nn.attention.flex_attention.flex_attention": attention(functions.flex_call, edited.flex),
    "regard.attention.attend.attend": attention(functions.regard_call, edited.attend),
    "regard.attention.kernels.additive.steps.attend_step": attention(
        functions.regard_call, edited.attend
    ),
    "regard.attention.attend.read": attention(functions.regard_call, edited.read),
    "torch.softmax": softmax,
}


class ReplacedMethod:
    """A method of a class, replaced until `remove`."""

    def __init__(self, owner: Any, name: str, method: Function) -> None:
        self._owner, self._name, self._own = owner, name, vars(owner).get(name)
        setattr(owner, name, method)

    def remove(self) -> None:
        if self._own is None:  # it was inherited
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own)


class Interception:
    """Starts with the first open watch of all threads and ends with the last one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._models: list[nn.Module] = []
        self._open: dict[str, tuple[Any, Any]] = {}
        self._handles: list[Any] = []
        self._interfaces: list[ReplacedMethod] = []

    def open(self, model: nn.Module) -> None:
        with self._lock:
            self._models.append(model)
            # F.softmax and nn.Softmax call Tensor.softmax.
            self._handles = self._handles or [
                *running.hooks(),
                ReplacedMethod(torch.Tensor, "softmax", softmax(torch.Tensor.softmax)),
            ]
            # `transformers` may have been imported after the first watch was opened.
            self._interfaces = self._interfaces or [
                ReplacedMethod(*each) for each in huggingface.replacements()
            ]
            added = {}
            for path, wrapper in FUNCTIONS.items():
                module, _, name = path.rpartition(".")
                if path not in self._open and module in sys.modules:
                    original = getattr(sys.modules[module], name)
                    added[path] = original, wrapper(original)
            self._open |= added
            # Modules that were imported since another watch was opened took the wrappers from their modules.
            swap(list(added.values()), [], everywhere=bool(added))
            swap(list(self._open.values()), [model], everywhere=False)

    def shut(self, model: nn.Module) -> None:
        with self._lock:
            del self._models[next(i for i, each in enumerate(self._models) if each is model)]
            last = not self._models
            swap([(there, here) for here, there in self._open.values()], [model], last)
            if not last:  # functions held by modules that other watched models share
                swap(list(self._open.values()), self._models, everywhere=False)
                return
            self._open.clear()
            for handle in (*self._handles, *self._interfaces):
                handle.remove()
            self._handles, self._interfaces = [], []


INTERCEPTION = Interception()


@contextmanager
def held(model: nn.Module) -> Iterator[None]:
    """Intercept once for all watches and changes inside, which then begin and end in less time."""
    INTERCEPTION.open(model)
    try:
        yield
    finally:
        INTERCEPTION.shut(model)


def _name(frame: RunningModule, owner: nn.Module) -> str:
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if value is frame.module:
            return name
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        for key, each in value.items() if isinstance(value, dict) else ():
            if each is frame.module:
                return f"{name}.{key}"
    own = getattr(frame.module, "name", None)
    if isinstance(own, str) and own:
        return own
    return f"{type(frame.module).__name__}_{frame.number}"


class ModelObserver(StackObserver):
    """A watch or a change of a model. It can be opened once; one that never was warns when it is dropped."""

    was_opened = True  # until __init__ ends, and from `begin` on

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._registered: dict[int, str] = {
            id(module): path for path, module in model.named_modules()
        }
        self.was_opened = False

    def __del__(self) -> None:
        if not self.was_opened:
            called = type(self).__name__.lower()
            text = f"regard.{called}(...) did nothing: write `with regard.{called}(...):` around the calls"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def begin(self) -> None:
        self.was_opened = True
        INTERCEPTION.open(self._model)
        running.add_observer(self)
        self.is_open = True

    def end(self) -> None:
        self.is_open = False
        running.remove_observer(self)
        INTERCEPTION.shut(self._model)

    def path(self, stack: Stack) -> str | None:
        """The path of the running module; None if it is outside of the model, or the watch has ended.

        torch does not register the layers of a Keras functional model, nor modules in an ordinary list
        or dictionary. Such a module is named after the attribute that holds it ("blocks.0"), else after
        its own `name`, else after its class and its number among the calls of that class.
        """
        if not (self.is_open and stack):
            return None
        known = self._registered.get(id(stack[-1].module))
        if known is not None:
            return known
        outer = self.path(stack[:-1])
        if outer is None:
            return None
        name = _name(stack[-1], stack[-2].module)
        return f"{outer}.{name}" if outer else name


def swap(
    pairs: Iterable[tuple[Any, Any]], models: Iterable[nn.Module], everywhere: bool = True
) -> None:
    """Replace objects in the namespaces of all imported modules and of the models' modules."""
    table = {id(old): (old, new) for old, new in pairs}
    modules = list(sys.modules.values()) if everywhere else []
    parts = [part for model in models for part in model.modules()]
    for each in (*modules, *parts):
        names = getattr(each, "__dict__", None)
        if type(names) is not dict or table.keys().isdisjoint(map(id, names.values())):
            continue
        for name, held in list(names.items()):
            if id(held) in table:
                names[name] = table[id(held)][1]
