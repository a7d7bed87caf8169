"""Where a step stands in its sequence: vectors to add to it, rotations of queries and keys, or biases of scores.

Rotations and biases depend on the distance between a query and a key alone. So sequences packed end to end (with
`regard.masks.documents`) need no places of their own, and a decoder that keeps its keys says where its query stands.
"""

from regard.attention.positions.biases import Alibi, RelativeBias, alibi_slopes, relative_buckets
from regard.attention.positions.rotary import Rotary, rotate
from regard.attention.positions.vectors import Learned, sinusoidal

__all__ = [
    "sinusoidal",
    "Learned",
    "rotate",
    "Rotary",
    "alibi_slopes",
    "Alibi",
    "relative_buckets",
    "RelativeBias",
]
