"""Looks: statistics of attention weights."""

from regard.attention.looks.look import Look, StoredLook

__all__ = ["Look", "StoredLook"]
