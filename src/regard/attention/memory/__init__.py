"""Memories: keys and values to be read by queries."""

from regard.attention.memory.file import MemoryFileError
from regard.attention.memory.heads import HeadMemory
from regard.attention.memory.memory import EmptyMemoryError, Found, Memory
from regard.attention.memory.ngrams import CharacterNgrams

__all__ = [
    "CharacterNgrams",
    "EmptyMemoryError",
    "Found",
    "HeadMemory",
    "Memory",
    "MemoryFileError",
]
