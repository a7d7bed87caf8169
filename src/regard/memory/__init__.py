"""Memories: keys and values to be read by queries."""

from regard.attention.caches import HeadMemory
from regard.memory.file import MemoryFileError
from regard.memory.memory import EmptyMemoryError, Found, Memory
from regard.memory.ngrams import CharacterNgrams
from regard.memory.stored import StoredMemory

__all__ = [
    "CharacterNgrams",
    "EmptyMemoryError",
    "Found",
    "HeadMemory",
    "Memory",
    "MemoryFileError",
    "StoredMemory",
]
