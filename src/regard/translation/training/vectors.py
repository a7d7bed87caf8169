"""Reads files of word vectors: the text format of word2vec and fastText, or safetensors."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
from numpy.typing import NDArray

from regard.errors import DataError
from regard.translation import weights
from regard.translation.text.corpora import BOM, opened

_WIDEST, _MOST = 10_000, 1_000_000_000
_LONGEST_LINE = 2**20
_BINARY = (b"\xba\x16\x4f\x2f", b"\x80", b"PK\x03\x04")
_ROWS = 4096


@dataclass
class Vectors:
    """The vectors of some words.

    Attributes:
        width: numbers in a vector.
        words: the vectors of the requested words that the file has.
        read: the number of vectors in the file.
        repeated: how many vectors were ignored because their word had one already.
    """

    width: int
    words: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    read: int = 0
    repeated: int = 0


def read_vectors(path: Path, wanted: Collection[str]) -> Vectors:
    """The vectors of the requested words. Other words of the file take no memory.

    A text file, plain or gzip, has a line for each word: the word and its numbers, separated by spaces. Its first line
    may be the number of words and the width. A file whose name ends in .safetensors has a tensor `vectors`
    (words x width) and a tensor `words` of bytes: the words in UTF-8, separated by line feeds.

    Raises:
        DataError: the file has another format.
    """
    if path.suffix == ".safetensors":
        return _from_tensors(path, frozenset(wanted))
    known = {word.encode(): word for word in wanted}
    number = 0
    try:
        with opened(path) as file:
            lines = _lines(file, path)
            first = next(lines, (1, b""))
            found, count = _begin(first[1], path)
            for number, raw in lines if count is not None else chain([first], lines):
                found.read += 1
                _take(raw, found, known, f"{path}:{number}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise DataError(f"{path}: broken gzip data after line {number}: {fault}") from None
    except OSError as fault:
        raise DataError(f"{path}: cannot be read: {fault.strerror or fault}") from None
    if count is not None and count != found.read:
        raise DataError(f"{path}: its first line says {count} words, there are {found.read}")
    return found


def _begin(line: bytes, path: Path) -> tuple[Vectors, int | None]:
    """Empty vectors of the right width, and the number of words if the first line gives it."""
    first = line.split()
    if len(first) == 2 and all(part.isdigit() and len(part) < 11 for part in first):
        count, width = map(int, first)
    else:
        count, width = None, len(first) - 1
    if not 1 <= width <= _WIDEST or not 0 < (1 if count is None else count) <= _MOST:
        raise DataError(
            f"{path}:1: expected the count of words and the width of their vectors (1 to {_WIDEST}), "
            "or a word and its numbers"
        )
    return Vectors(width), count


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := file.readline(_LONGEST_LINE + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(BOM)
            if raw.startswith(_BINARY):
                raise DataError(f"{path}: a binary file: give the vectors as text (.vec)")
        if len(raw) > _LONGEST_LINE:
            raise DataError(f"{path}:{number}: the line is longer than {_LONGEST_LINE} bytes")
        yield number, raw.rstrip(b" \r\n")


def _take(raw: bytes, found: Vectors, known: dict[bytes, str], where: str) -> None:
    if raw.count(b" ") < found.width:
        raise DataError(f"{where}: expected a word and {found.width} numbers")
    word = known.get(raw.partition(b" ")[0])
    if word is None or raw.count(b" ") > found.width:  # words with spaces are not used
        return
    if word in found.words:
        found.repeated += 1
        return
    try:
        with np.errstate(over="ignore"):
            vector = np.array(raw.split(b" ")[1:]).astype(np.float64).astype(np.float32)
    except ValueError:
        raise DataError(f"{where}: expected numbers after {word[:40]!r}") from None
    found.words[word] = _finite(vector, where)


def _finite(vector: NDArray[np.float32], where: str) -> NDArray[np.float32]:
    if not np.isfinite(vector).all():
        raise DataError(f"{where}: a number that is not finite")
    return vector


def _from_tensors(path: Path, wanted: frozenset[str]) -> Vectors:
    weights.check_header(path)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            if set(file.keys()) != {"words", "vectors"}:
                raise DataError(f"{path}: expected two tensors, `words` and `vectors`")
            vectors, letters = file.get_slice("vectors"), file.get_slice("words")
            shape = vectors.get_shape()
            if len(shape) != 2 or not 1 <= shape[1] <= _WIDEST or not 0 < shape[0] <= _MOST:
                raise DataError(f"{path}: `vectors` has shape {shape}, expected words x width")
            if vectors.get_dtype() not in ("F16", "F32", "F64") or letters.get_dtype() != "U8":
                raise DataError(f"{path}: expected floating-point `vectors` and bytes of `words`")
            words = bytes(file.get_tensor("words")).decode("utf-8").split("\n")
            if len(words) != shape[0]:
                raise DataError(f"{path}: {len(words)} words and {shape[0]} vectors")
            found = Vectors(shape[1], read=shape[0])
            for start in range(0, shape[0], _ROWS):
                _take_rows(words[start : start + _ROWS], vectors, start, found, wanted, path)
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}: byte {fault.start + 1} of `words` is not UTF-8") from None
    except (safetensors.SafetensorError, ValueError, TypeError) as fault:
        raise DataError(f"{path}: corrupted or truncated: {str(fault)[:200]}") from None
    return found


def _take_rows(
    words: list[str],
    vectors: Any,
    start: int,
    found: Vectors,
    wanted: frozenset[str],
    path: Path,
) -> None:
    own = [row for row, word in enumerate(words) if word in wanted]
    if not own:
        return
    with np.errstate(over="ignore"):
        block = np.asarray(vectors[start : start + len(words)]).astype(np.float32)
    for row in own:
        if words[row] in found.words:
            found.repeated += 1
        else:
            found.words[words[row]] = _finite(block[row], f"{path}: vector {start + row}")
