"""Masks: which keys each query may read. True = may be read."""

from regard.attention.masks.documents import documents
from regard.attention.masks.mask import Given, Mask, MaskLike, Positional, as_mask
from regard.attention.masks.packed import packed
from regard.attention.masks.padding import padding
from regard.attention.masks.positions import band, causal

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
