"""Checks of foreign sentencepiece files, made before the C++ library reads them.

Files of ours are checked by `translation.text.vocabulary`. Foreign ones may also normalise characters by a compiled
map, need not fall back to bytes, and may number their pieces in any order. The library trusts the pieces and the
tables of that map, so both are checked here.
"""

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.translation.text import vocabulary

_SELF_TEST = 4
_NORMAL, UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


def check(model: bytes, name: str) -> list[tuple[str, int]]:
    """The text and the kind of each piece of a file; `ModelError` unless the library can read it safely."""
    try:
        pieces, messages = vocabulary.parse(model, ignored=_SELF_TEST)
        falls_back = messages.get(vocabulary.TRAINER, {}).get(vocabulary.BYTE_FALLBACK) == 1
        _check_kinds([kind for _, kind in pieces])
        vocabulary.check_distinct(pieces, falls_back=falls_back)
        for number in (vocabulary.NORMALISER, vocabulary.DENORMALISER):
            compiled = messages.get(number, {}).get(vocabulary.CHARACTER_MAP, b"")
            check_map(vocabulary.content(compiled))
    except ValueError as fault:
        raise ModelError(f"{name}: not a usable sentencepiece model: {fault}") from None
    return pieces


def _check_kinds(kinds: list[int]) -> None:
    if not 1 < len(kinds) <= vocabulary.LARGEST_VOCABULARY:
        raise ValueError(f"it holds {len(kinds)} pieces")
    if kinds.count(UNKNOWN) != 1:
        raise ValueError(f"it holds {kinds.count(UNKNOWN)} pieces for the unknown, expected 1")
    if not set(kinds) <= {_NORMAL, UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE}:
        raise ValueError("it holds a piece of an unknown kind")
    if _NORMAL not in kinds:
        raise ValueError("it holds no piece of text")


def check_map(compiled: bytes) -> None:
    """Raise ValueError where some text would make the library read outside a compiled character map.

    The map is the length of a trie, the trie as an array of 32-bit units (a double array: Aoe 1989; Darts-clone), and
    the texts that its values point into, each ended by NUL. From a unit at place p, byte c leads to p ^ offset ^ c;
    where the unit is marked, p ^ offset holds a value.
    """
    if not compiled:
        return
    length = int.from_bytes(compiled[:4], "little")
    texts = compiled[4 + length :]
    if len(compiled) < 4 or length > len(compiled) - 4 or length % 1024 or not length:
        raise ValueError("its character map is truncated")
    if not texts.endswith(b"\0"):
        raise ValueError("the texts of its character map do not end")
    _walk(np.frombuffer(compiled[4 : 4 + length], dtype="<u4"), len(texts))


def _walk(units: NDArray[np.uint32], texts: int) -> None:
    """Visit every unit that some text could lead to."""
    # A unit is entered from one base alone, by the byte it is labelled with; values are labelled beyond bytes.
    labels = units.astype(np.int64) & 0x800000FF
    entered = np.flatnonzero(labels < 256)
    entries = entered ^ labels[entered]
    order = np.argsort(entries)
    entered, entries = entered[order], entries[order]
    reached = np.zeros(len(units), dtype=bool)
    places = np.zeros(1, dtype=np.int64)
    while len(places):
        visited = units[places].astype(np.int64)
        bases = places ^ ((visited >> 10) << ((visited & (1 << 9)) >> 6))
        # The table is whole blocks of 256 units, and a byte leads to one of the block that holds the base.
        if bool((bases >= len(units)).any()):
            raise ValueError("its character map leads out of its table")
        values = units[bases[(visited >> 8) & 1 == 1]].astype(np.int64) & 0x7FFFFFFF
        if bool((values >= texts).any()):
            raise ValueError("its character map points beyond its texts")
        bases = np.unique(bases)
        starts = np.searchsorted(entries, bases)
        counts = np.searchsorted(entries, bases, side="right") - starts
        ranges = np.repeat(starts - counts.cumsum() + counts, counts) + np.arange(counts.sum())
        places = entered[ranges]
        places = places[~reached[places]]
        reached[places] = True
