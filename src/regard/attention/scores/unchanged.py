"""Whether a score computes what its class says, so that a kernel may compute it in its place."""

from __future__ import annotations

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def unchanged(score: object, kind: type, *methods: str) -> bool:
    """Whether `score` is of this kind, and no subclass, attribute or hook replaces these methods.

    Hooks are those of the module itself. Hooks for all modules, as profilers and `regard.watch`
    register them, do not count.

    Example:
        >>> from regard.attention.scores import Dot
        >>> unchanged(Dot(), Dot, "__call__")
        True
    """
    own = type(score)
    if not isinstance(score, kind):
        return False
    if own is not kind and any(getattr(own, m) is not getattr(kind, m) for m in methods):
        return False
    if not isinstance(score, nn.Module):
        return True
    hooked = any(getattr(score, hooks) for hooks in HOOKS)
    return not hooked and not any(method in vars(score) for method in methods)
