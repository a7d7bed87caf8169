"""Masks: which keys each query may read. True = may be read."""

from regard.attention.masks.mask import Given, Mask, MaskLike, Positional, as_mask
from regard.attention.masks.positions import band, causal
from regard.attention.masks.sequences import documents, packed, padding

__all__ = [
    "Given",
    "Mask",
    "MaskLike",
    "Positional",
    "as_mask",
    "band",
    "causal",
    "documents",
    "packed",
    "padding",
]
