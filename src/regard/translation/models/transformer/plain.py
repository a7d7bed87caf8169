"""Whether a Transformer is what its layers' equations say, so that other loops may compute them."""

from __future__ import annotations

from torch import nn

from regard.attention.heads import MultiHeadAttention
from regard.translation.models.dropout import Dropout
from regard.translation.models.hooks import hooked
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
    known = all(module is model or type(module) in _KINDS for module in model.modules())
    return known and not hooked(model)
