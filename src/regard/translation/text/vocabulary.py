"""Checks of sentencepiece model files, made before the C++ library reads them.

A crafted character map or crafted pieces can crash that library, and the crash cannot be caught. Only files as we
train them pass: with an empty character map, distinct pieces and every byte.
The format is protocol buffers: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

import functools
import math
import re
import struct
from collections.abc import Iterator
from io import BytesIO
from itertools import takewhile

LARGEST_VOCABULARY = 1_000_000
_LONGEST_PIECE = 256
_LARGEST_SCORE = 1e7
_MOST_TAGS = 1000
_TAG = re.compile("<([0-9A-Za-z][0-9A-Za-z_-]{0,63})>")

# Fields of ModelProto, of a piece, of TrainerSpec and of NormalizerSpec.
_PIECE, TRAINER, NORMALISER, DENORMALISER = 1, 2, 3, 5
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _SPACE_AS_SUFFIX, BYTE_FALLBACK = 3, 24, 35
CHARACTER_MAP, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 2, 3, 4, 5
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6

# Padding, unknown, begin and end of sentence.
_SPECIAL = [_CONTROL, _UNKNOWN, _CONTROL, _CONTROL]

_SPACES = "it treats spaces in another way than our models"
_CHARACTERS = "it normalises characters, which our models do not"
# A part, one of its fields, the value of a field that is left out, our value, and what another one means.
_EXPECTED = (
    (TRAINER, BYTE_FALLBACK, 0, 1, "it does not fall back to bytes"),
    (TRAINER, _SPACE_AS_SUFFIX, 0, 0, "its spaces end words, ours begin them"),
    (NORMALISER, _DUMMY_PREFIX, 1, 1, _SPACES),
    (NORMALISER, _REMOVE_SPACES, 1, 0, _SPACES),
    (NORMALISER, _ESCAPE_SPACES, 1, 1, _SPACES),
    (NORMALISER, CHARACTER_MAP, b"", b"", _CHARACTERS),
    (DENORMALISER, CHARACTER_MAP, b"", b"", _CHARACTERS),
)

Value = int | bytes
# The fields of each part of a file, by their numbers.
Parts = dict[int, dict[int, Value]]


@functools.lru_cache(4)  # several models have the same one
def check(model: bytes) -> tuple[str, ...]:
    """The names of the tags of a unigram or BPE model as we train them; they follow the four special pieces.

    Raises:
        ValueError: it is another kind of model, or broken; the text says how.
    """
    pieces, sections = parse(model)
    for section, field, default, ours, fault in _EXPECTED:
        if sections.get(section, {}).get(field, default) != ours:
            raise ValueError(fault)
    if not 4 < len(pieces) <= LARGEST_VOCABULARY:
        raise ValueError(f"it holds {len(pieces)} pieces")
    if [kind for _, kind in pieces[:4]] != _SPECIAL:
        raise ValueError("padding, unknown, begin and end must be ids 0, 1, 2, 3")
    names = [name for name, _ in takewhile(lambda each: each[1] == _CONTROL, pieces[4:])]
    if len(names) > _MOST_TAGS or not all(map(_TAG.fullmatch, names)):
        raise ValueError(
            f"it has more than {_MOST_TAGS} tags, or tags with odd names: expected <2fr>"
        )
    if any(kind not in (_NORMAL, _BYTE) for _, kind in pieces[4 + len(names) :]):
        raise ValueError("it holds pieces that are neither text nor bytes")
    check_distinct(pieces, falls_back=True)
    return tuple(name[1:-1] for name in names)


def parse(model: bytes, ignored: int | None = None) -> tuple[list[tuple[str, int]], Parts]:
    """The text and type of each piece, and the fields of the trainer and the two normalisers.

    Raises:
        ValueError: it is no such file, or has another field than these and `ignored`.
    """
    pieces: list[tuple[str, int]] = []
    sections: Parts = {}
    for field, value in fields(model):
        if field == _PIECE:
            pieces.append(_piece(len(pieces), content(value)))
        elif field in (TRAINER, NORMALISER, DENORMALISER) and field not in sections:
            sections[field] = dict(fields(content(value)))
        elif field != ignored:
            raise ValueError(f"field {field} is unknown or given twice")
    if sections.get(TRAINER, {}).get(_MODEL_TYPE, 1) not in (1, 2):
        raise ValueError("it is neither a unigram nor a BPE model")
    return pieces, sections


def check_distinct(pieces: list[tuple[str, int]], *, falls_back: bool) -> None:
    """Raise ValueError unless pieces differ and each byte is one where the model falls back to bytes."""
    if len({text for text, _ in pieces}) != len(pieces):
        raise ValueError("it holds a piece twice")
    expected = {f"<0x{b:02X}>" for b in range(256)} if falls_back else set()
    if {text for text, kind in pieces if kind == _BYTE} != expected:
        raise ValueError("it does not hold each byte once, or holds bytes it does not fall back to")


def _piece(number: int, data: bytes) -> tuple[str, int]:
    values = dict(fields(data))
    text = content(values.get(_TEXT, b""))
    if not 0 < len(text) <= _LONGEST_PIECE or 0 in text:
        raise ValueError(f"piece {number} is empty, too long or holds NUL")
    bits = content(values.get(_SCORE, bytes(4)))
    score = struct.unpack("<f", bits)[0] if len(bits) == 4 else math.nan
    if not math.isfinite(score) or abs(score) > _LARGEST_SCORE:
        raise ValueError(f"piece {number} has the score {score}")
    kind = values.get(_TYPE, _NORMAL)
    if not isinstance(kind, int):
        raise ValueError(f"piece {number} has no type")
    return text.decode("utf-8"), kind


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Each field's number and value: whole numbers as such, all else as its bytes."""
    stream = BytesIO(data)
    while stream.tell() < len(data):
        field, wire = divmod(_varint(stream), 8)
        if wire == 0:
            yield field, _varint(stream)
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"a field of wire type {wire}")
        length = _varint(stream) if wire == 2 else 8 if wire == 1 else 4
        if length > len(data) - stream.tell():
            raise ValueError("it is truncated")
        yield field, stream.read(length)


def _varint(stream: BytesIO) -> int:
    """A whole number, seven bits a byte."""
    number = 0
    for shift in range(0, 64, 7):
        byte = stream.read(1)
        if not byte:
            raise ValueError("it is truncated")
        number |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return number
    raise ValueError("a number of more than 64 bits")


def content(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where text belongs")
    return value
