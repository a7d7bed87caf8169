"""The parts of our attention heads that the layers of other projects have as well."""

from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot

PROJECTIONS = ("query_projection", "key_projection", "value_projection", "output_projection")


def check_plain(ours: MultiHeadAttention, theirs: str) -> None:
    """Raise ValueError unless ours has scaled dot products, softmax and heads side by side, and nothing more."""
    if ours.rotary is not None:
        raise ValueError(f"it rotates queries and keys by {ours.rotary}: {theirs} does not")
    if ours.query_norm is not None:
        raise ValueError(f"it normalises queries and keys: {theirs} does not")
    if ours.score is not None and ours.score != ScaledDot():
        raise ValueError(f"score is {ours.score}: {theirs} has scaled dot products only")
    if ours.normaliser is not None and ours.normaliser != Softmax():
        raise ValueError(f"normaliser is {ours.normaliser}: {theirs} has softmax only")
    if ours.merge != "concat":
        raise ValueError(f'merge is {ours.merge!r}: {theirs} has heads side by side, "concat"')
