"""Looks: what the weights say."""

from regard.attention.looks.look import Look
from regard.attention.looks.stored import StoredLook

__all__ = ["Look", "StoredLook"]
