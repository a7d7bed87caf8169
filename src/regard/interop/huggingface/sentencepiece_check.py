"""Sentencepiece files of others, read here before the C++ library is given them.

Ours must be as we train them (`translation.text.vocabulary`). One from elsewhere may also normalise characters by a
compiled map, need not fall back to bytes, and numbers its pieces as it likes. What the library would believe without
looking is checked: the pieces, and every step that the map's tables allow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.translation.text.vocabulary import Value, content, fields, piece

_MOST_PIECES = 1_000_000
_PIECE, _TRAINER, _NORMALISER, _SELF_TEST, _DENORMALISER = 1, 2, 3, 4, 5
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_CHARACTER_MAP = 2
_NORMAL, UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


def check(model: bytes, name: str) -> list[tuple[str, int]]:
    """The text and the kind of each piece of a file that the library may be given.

    Raises:
        ModelError: it may not; names the file and says what is wrong.
    """
    try:
        return _checked(model)
    except ValueError as fault:
        raise ModelError(f"{name}: not a usable sentencepiece model: {fault}") from None


def _checked(model: bytes) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    parts: dict[int, dict[int, Value]] = {}
    for field, value in fields(model):
        if field == _PIECE:
            found.append(piece(len(found), content(value)))
        elif field in (_TRAINER, _NORMALISER, _DENORMALISER) and field not in parts:
            parts[field] = dict(fields(content(value)))
        elif field != _SELF_TEST:
            raise ValueError(f"field {field} is unknown or given twice")
    trainer = parts.get(_TRAINER, {})
    if trainer.get(_MODEL_TYPE, 1) not in (1, 2):
        raise ValueError("it is neither a unigram nor a BPE model")
    _check_pieces(found, falls_back=trainer.get(_BYTE_FALLBACK) == 1)
    for part in (_NORMALISER, _DENORMALISER):
        check_map(content(parts.get(part, {}).get(_CHARACTER_MAP, b"")))
    return found


def _check_pieces(found: list[tuple[str, int]], *, falls_back: bool) -> None:
    if not 1 < len(found) <= _MOST_PIECES:
        raise ValueError(f"it holds {len(found)} pieces")
    if len({text for text, _ in found}) != len(found):
        raise ValueError("it holds a piece twice")
    kinds = [kind for _, kind in found]
    if kinds.count(UNKNOWN) != 1:
        raise ValueError(f"it holds {kinds.count(UNKNOWN)} pieces for the unknown, expected 1")
    if not set(kinds) <= {_NORMAL, UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE}:
        raise ValueError("it holds a piece of an unknown kind")
    if _NORMAL not in kinds:
        raise ValueError("it holds no piece of text")
    bytes_expected = {f"<0x{b:02X}>" for b in range(256)} if falls_back else set()
    if {text for text, kind in found if kind == _BYTE} != bytes_expected:
        raise ValueError("it does not hold each byte once, or holds bytes it does not fall back to")


def check_map(compiled: bytes) -> None:
    """Raises ValueError unless a compiled character map can be walked, whatever the text, without leaving it.

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
    """Every unit that some text could lead to, breadth first."""
    # A unit is entered by the byte it is labelled with, so from one base alone; values are labelled beyond bytes.
    labels = units.astype(np.int64) & 0x800000FF
    enterable = np.flatnonzero(labels < 256)
    entered_from = enterable ^ labels[enterable]
    order = np.argsort(entered_from, kind="stable")
    enterable, entered_from = enterable[order], entered_from[order]
    reached = np.zeros(len(units), dtype=bool)
    reached[0] = True
    places = np.zeros(1, dtype=np.int64)
    while len(places):
        here = units[places].astype(np.int64)
        bases = places ^ ((here >> 10) << ((here & (1 << 9)) >> 6))
        # The table is whole blocks of 256 units, and a byte leads to one of the block that holds the base.
        if bool((bases >= len(units)).any()):
            raise ValueError("its character map leads out of its table")
        values = units[bases[(here >> 8) & 1 == 1]].astype(np.int64) & 0x7FFFFFFF
        if bool((values >= texts).any()):
            raise ValueError("its character map points beyond its texts")
        first = np.searchsorted(entered_from, bases, side="left")
        last = np.searchsorted(entered_from, bases, side="right")
        children = np.unique(_ranges(enterable, first, last))
        places = children[~reached[children]]
        reached[places] = True


def _ranges(
    items: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    """items[first[0]:last[0]], items[first[1]:last[1]], ... end to end."""
    counts = last - first
    starts = np.repeat(first - np.cumsum(counts) + counts, counts)
    chosen: NDArray[np.int64] = items[starts + np.arange(counts.sum())]
    return chosen
