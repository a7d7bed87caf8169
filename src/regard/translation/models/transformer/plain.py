"""Whether a Transformer is what its layers' equations say, so that other loops may compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from regard.attention.blocks import ACTIVATIONS, Dropout, FeedForward, Residual
from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.translation.models.hooks import every, hooked
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer
from regard.translation.settings.transformer import TransformerSettings

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = ("relu", "gelu", "silu")


def is_plain(model: Transformer) -> bool:
    """No hook anywhere, no layer that another kind stands for, an adapted or a quantized one, and none with a part
    that the loops have not: their positions are added to the words, so scores have neither biases nor rotations.
    """
    if not model.adds_positions:
        return False
    known = all(module is model or _is_known(module, model.settings) for module in every(model))
    return known and not hooked(model)


def _is_known(module: nn.Module, settings: TransformerSettings) -> bool:
    """Whether it is of a kind that the loops have, and still what the settings say, which the loops go by."""
    if type(module) not in _KINDS:
        return False
    if isinstance(module, MultiHeadAttention):
        return _is_usual(module)
    if isinstance(module, FeedForward):
        return (
            module.gate is None
            and module.inner.bias is not None
            and settings.activation in _ACTIVATIONS
            and module.activation is ACTIVATIONS[settings.activation]
        )
    if isinstance(module, Residual):
        return module.before == (settings.norm == "pre")
    return not isinstance(module, Dropout) or module.rate == settings.dropout


def _is_usual(attention: MultiHeadAttention) -> bool:
    """Scaled dot products and softmax over heads that are together as wide as the model, nothing dropped or turned."""
    return (
        (attention.score is None or attention.score == ScaledDot())
        and (attention.normaliser is None or attention.normaliser == Softmax())
        and attention.merge == "concat"
        and attention.dropout == 0
        and attention.rotary is None
        and attention.query_norm is None
        and attention.group == 1
        and attention.heads * attention.d_head == attention.d_query
    )
