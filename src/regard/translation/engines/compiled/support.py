"""Which Transformers the compiled loops compute."""

from __future__ import annotations

from torch import nn

from regard.attention.blocks import ACTIVATIONS, Dropout, FeedForward, Residual
from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.translation.engines.hooks import hooked
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = ("relu", "gelu", "silu")


def unsupported(model: Transformer) -> str | None:
    """What of this model the compiled loops do not compute; None where they compute all of it.

    They add positions to the words, so scores have neither biases nor rotations; they call no hooks and no layers of
    other kinds, such as adapted or quantized ones.
    """
    if not model.adds_positions:
        return f"compiled search has no {model.settings.positions} positions"
    if hooked(model):
        return "compiled search calls no hooks, and this model has some"
    for name, module in model.named_modules():
        if module is not model and not _is_known(module, model.settings):
            return f"compiled search does not compute {name} ({type(module).__name__}) as it is set"
    return None


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
