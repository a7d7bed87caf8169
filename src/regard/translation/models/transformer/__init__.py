"""The Transformer: settings, layers, what its decoder remembers, and the model."""

from regard.translation.models.transformer.layers import (
    ACTIVATIONS,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
)
from regard.translation.models.transformer.model import Transformer
from regard.translation.models.transformer.settings import TransformerSettings
from regard.translation.models.transformer.state import TransformerEncoded, TransformerState

__all__ = [
    "ACTIVATIONS",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "Residual",
    "Transformer",
    "TransformerEncoded",
    "TransformerSettings",
    "TransformerState",
]
