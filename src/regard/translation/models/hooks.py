"""Whether somebody wants to be called when a layer is, which loops over its weights would not do."""

from __future__ import annotations

from torch import nn


def hooked(*modules: nn.Module) -> bool:
    """Whether any of these modules, or of those within, has a hook."""
    return any(
        within._forward_hooks
        or within._forward_pre_hooks
        or within._backward_hooks
        or within._backward_pre_hooks
        for module in modules
        for within in module.modules()
    )
