"""A block of the Transformer: attention and a feed-forward layer, each with a norm and a residual."""

from regard.attention.blocks.block import TransformerBlock
from regard.attention.blocks.layers import ACTIVATIONS, FeedForward, Residual
from regard.attention.dropout import Dropout
from regard.attention.heads import new_norm

__all__ = ["ACTIVATIONS", "Dropout", "FeedForward", "Residual", "TransformerBlock", "new_norm"]
