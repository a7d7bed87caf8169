"""The n-grams of strings, hashed and counted in one pass: 39 times as fast as calls of zlib (benchmarks/memory.py)."""

import math
import zlib
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner

START, END = 2, 3  # the bytes of the marks around a string
ONES = 0xFFFFFFFF
SHORTEST = np.float32(1e-12)  # a shorter vector is not divided by its length
# What CRC-32 makes of the lowest byte of its state: zlib starts with ones and ends by inverting.
TABLE = np.array([zlib.crc32(bytes([255 - byte])) for byte in range(256)], np.uint32) ^ 0xFF000000


@inner
def _following(state: Any, byte: Any) -> Any:
    """The state of CRC-32 after one more byte."""
    return TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)


@inner
def _count(state: Any, counts: Any) -> None:
    """counts[code / 2 mod width] += sign(code)."""
    code = np.int64(state ^ ONES)
    counts[(code >> 1) % len(counts)] += 1 if code & 1 else -1


@inner
def _normalise(counts: Any) -> None:
    """counts / |counts|: whole numbers, whose squares have an exact sum."""
    squares = 0.0
    for place in range(len(counts)):
        squares += np.float64(counts[place]) ** 2
    length = max(np.float32(math.sqrt(squares)), SHORTEST)
    for place in range(len(counts)):
        counts[place] /= length


@compiled
def hash_grams(text: Any, ends: Any, shortest: int, longest: int, vectors: Any) -> None:
    """The n-grams of every string as a unit vector.

    Args:
        text: (bytes,) the strings, each between its marks, in UTF-8.
        ends: (strings,) where each ends in the text.
        shortest: characters of the shortest n-gram.
        longest: characters of the longest.
        vectors: (strings, width) of zeros, written to.
    """
    start = 0
    for row in range(len(ends)):
        end, counts = ends[row], vectors[row]
        checksum = np.uint32(ONES)
        for begin in range(start, end):
            checksum = _following(checksum, text[begin])
            if text[begin] & 0xC0 == 0x80:
                continue  # inside a character
            # From each character on, one checksum runs over the n-grams of all sizes.
            state, size = np.uint32(ONES), 0
            for place in range(begin, end):
                state = _following(state, text[place])
                if place + 1 < end and text[place + 1] & 0xC0 == 0x80:
                    continue
                size += 1
                is_mark = size == 1 and (text[place] == START or text[place] == END)
                if size >= shortest and not is_mark:
                    _count(state, counts)
                if size == longest:
                    break
        _count(checksum, counts)  # the whole counts too: the empty string has nothing else
        _normalise(counts)
        start = end
