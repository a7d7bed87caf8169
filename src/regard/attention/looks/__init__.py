"""Looks: statistics of attention weights."""

from regard.attention.looks.look import Look
from regard.attention.looks.stored import StoredLook

__all__ = ["Look", "StoredLook"]
