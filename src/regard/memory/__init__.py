"""Memories: keys and values to be read by queries."""

from regard.attention.caches import HeadMemory
from regard.memory.bounded import BoundedReading
from regard.memory.file import MemoryFileError
from regard.memory.found import EmptyMemoryError, Found
from regard.memory.memory import Memory
from regard.memory.nearest import Nearest, NearestIndex
from regard.memory.ngrams import CharacterNgrams
from regard.memory.stored import StoredMemory

__all__ = [
    "BoundedReading",
    "CharacterNgrams",
    "EmptyMemoryError",
    "Found",
    "HeadMemory",
    "Memory",
    "MemoryFileError",
    "Nearest",
    "NearestIndex",
    "StoredMemory",
]
