"""Whether a Transformer is what its layers' equations say, so that other loops may compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import nn

from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.translation.models.dropout import Dropout
from regard.translation.models.hooks import hooked
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
)

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = (F.relu, F.gelu, F.silu)


def is_plain(model: Transformer) -> bool:
    """No hook anywhere, no layer that another kind stands for, an adapted or a quantized one, and none with a part
    that the loops have not: their positions are added to the words, so scores have neither biases nor rotations.
    """
    if not model.adds_positions:
        return False
    known = all(module is model or _is_known(module) for module in model.modules())
    return known and not hooked(model)


def _is_known(module: nn.Module) -> bool:
    if isinstance(module, MultiHeadAttention) and not _is_usual(module):
        return False
    if isinstance(module, FeedForward) and (
        module.gate is not None
        or module.inner.bias is None
        or module.activation not in _ACTIVATIONS
    ):
        return False
    return type(module) in _KINDS


def _is_usual(attention: MultiHeadAttention) -> bool:
    """Scaled dot products and softmax over heads that are together as wide as the model, nothing dropped or turned."""
    return (
        (attention.score is None or attention.score == ScaledDot())
        and (attention.normaliser is None or attention.normaliser == Softmax())
        and attention.merge == "concat"
        and attention.dropout == 0
        and attention.rotary is None
        and attention.heads * attention.d_head == attention.d_query
    )
