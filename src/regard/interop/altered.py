"""Why a module may compute something else than its class: to convert its weights alone would change the answers."""

from types import MethodType
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

OURS = ("torch.nn.modules", "regard")  # packages whose classes our models are made of
# Special methods that take part in what a module computes.
_CALLING = {"__call__", "__getattr__", "__getattribute__"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def refuse_altered(module: Any, error: type[Exception], homes: tuple[str, ...] = OURS) -> None:
    """Raise this error where a module has a part that is not as a class of these packages made it."""
    if reason := objection(module, *homes):
        raise error(f"{reason}; its weights alone would give other answers")


def objection(module: Any, *homes: str) -> str | None:
    """The first part of a module that is not as a class of these packages made it, and why; None if all are.

    A part is not if its class overrides methods of a class of the packages, if it has forward hooks or
    parametrizations, or if its methods were replaced.

    >>> class Doubled(nn.Linear):
    ...     def forward(self, x):
    ...         return 2 * super().forward(x)
    >>> objection(nn.Sequential(nn.ReLU(), Doubled(2, 2)), "torch.nn.modules")
    '1 is a Doubled, a subclass of Linear that overrides forward'
    """
    modules = dict(module.named_modules()) if isinstance(module, nn.Module) else {"": module}
    reasons = ((path, _module_objection(part, homes)) for path, part in modules.items())
    return next((f"{path or 'it'} {reason}" for path, reason in reasons if reason), None)


def _module_objection(module: Any, homes: tuple[str, ...]) -> str | None:
    if isinstance(module, nn.Module) and parametrize.is_parametrized(module):
        return "has parametrizations: take them away with parametrize.remove_parametrizations"
    kinds = type(module).__mro__
    base = next((kind for kind in kinds if _is_of(kind.__module__, homes)), nn.Module)
    if base is not nn.Module:
        added = {name for kind in kinds[: kinds.index(base)] for name in vars(kind)}
        if methods := [name for name in sorted(added) if _is_method(base, name)]:
            return (
                f"is a {type(module).__name__}, a subclass of {base.__name__} "
                f"that overrides {', '.join(methods)}"
            )
    replaced = [
        name
        for name, value in vars(module).items()
        if _is_method(type(module), name) and not _is_original(value, module, name, homes)
    ]
    if replaced:
        return f"has another {', '.join(replaced)} than its class {type(module).__name__}"
    if any(getattr(module, hooks, None) for hooks in _HOOKS):
        return "has forward hooks, which may change its output: remove them"
    return None


def _is_method(kind: type, name: str) -> bool:
    return callable(getattr(kind, name, None)) and (name[:2] != "__" or name in _CALLING)


def _is_original(value: Any, owner: Any, name: str, homes: tuple[str, ...]) -> bool:
    """Whether a method that an object holds itself is that of its class, or a wrapper that a package made."""
    if isinstance(value, MethodType):
        return value.__self__ is owner and value.__func__ is getattr(type(owner), name)
    return _is_of(getattr(value, "__module__", ""), homes)


def _is_of(module: str | None, homes: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{home}.") for home in homes)
