"""The choice of an engine, with the reason when it is not the fastest."""

import torch
from torch import nn

from regard.attention.blocks import ACTIVATIONS, FeedForward, Residual
from regard.attention.dropout import Dropout
from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.translation.engines.engine import (
    CompiledEngine,
    EnsembleEngine,
    SearchEngine,
    device_of,
    hooked,
    loops_objection,
)
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = ("relu", "gelu", "silu")


def choose(model: TranslationModel, *, avoid_loops: str = "", few: int = 0) -> SearchEngine:
    """The fastest engine that computes what the model's layers compute, for its weights as they are now.

    `avoid_loops` is a reason not to load compiled loops; `few` sentences are translated before they are loaded.
    """
    if isinstance(model, Ensemble):
        engines = [choose(each, avoid_loops=avoid_loops, few=few) for each in model]
        return EnsembleEngine(model, engines, few=few)
    reason = avoid_loops or loops_objection(device_of(model)) or objection(model)
    if isinstance(model, Transformer) and not reason:
        return CompiledEngine(model, few=few)
    return SearchEngine(model, reason=reason or "", loops=not avoid_loops, few=few)


def objection(model: TranslationModel) -> str | None:
    """What of this model the compiled loops do not compute; None where they compute all of it.

    They add positions to the words, so scores have neither biases nor rotations; they call no hooks and no layers of
    other kinds, such as adapted or quantized ones.
    """
    if not isinstance(model, Transformer):
        return f"compiled search is for a single Transformer, and this is a {type(model).__name__}"
    precisions = {weight.dtype for weight in model.parameters()} - {torch.float32}
    if precisions:
        return f"compiled search computes in float32, and this model is in another precision: {precisions.pop()}"
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
    if isinstance(module, MultiHeadAttention):  # softmax of scaled dot products, and nothing more
        return (
            (module.score is None or module.score == ScaledDot())
            and (module.normaliser is None or module.normaliser == Softmax())
            and module.merge == "concat"
            and module.dropout == 0
            and module.rotary is None
            and module.query_norm is None
            and module.group == 1
            and module.heads * module.d_head == module.d_query
        )
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
