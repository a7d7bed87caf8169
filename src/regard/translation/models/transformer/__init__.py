"""The Transformer: settings, layers, the decoder's state and the model."""

from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerEncoded,
    TransformerState,
)
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

__all__ = [
    "DecoderLayer",
    "EncoderLayer",
    "Transformer",
    "TransformerEncoded",
    "TransformerSettings",
    "TransformerState",
]
