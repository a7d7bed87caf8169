"""Whether a Transformer is what its layers' equations say, so that other loops may compute them."""

from __future__ import annotations

from torch import nn

from regard.attention.heads import MultiHeadAttention
from regard.translation.models.dropout import Dropout
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
)

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}


def is_plain(model: nn.Module) -> bool:
    """No hook anywhere, and no layer that another kind stands for, an adapted or a quantized one."""
    return all(
        (module is model or type(module) in _KINDS) and not hooked(module)
        for module in model.modules()
    )


def hooked(module: nn.Module) -> bool:
    """Whether somebody wants to be called when this module is."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
