"""The Transformer: settings, layers, what its decoder remembers, and the model."""

from regard.translation.configuration.transformer import TransformerSettings
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer
from regard.translation.models.transformer.model import Transformer
from regard.translation.models.transformer.state import TransformerEncoded, TransformerState

__all__ = [
    "DecoderLayer",
    "EncoderLayer",
    "Transformer",
    "TransformerEncoded",
    "TransformerSettings",
    "TransformerState",
]
