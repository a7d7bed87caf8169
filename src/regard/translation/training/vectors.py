"""Reads files of word vectors: the text format of word2vec and fastText, or safetensors."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard import files, tensor_files
from regard.errors import DataError, one_line, raised_as
from regard.translation.text.corpora import BOM, opened, raw_lines

_WIDEST, _MOST = 10_000, 1_000_000_000
_LONGEST_LINE = 2**20
# The types of vectors in safetensors files.
_FLOATS: dict[str, DTypeLike] = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


@dataclass
class Vectors:
    """The vectors of the requested words that a file has.

    Attributes:
        read: the number of vectors in the file.
        repeated: how many vectors were ignored because their word had one already.
    """

    width: int
    words: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    read: int = 0
    repeated: int = 0

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """The vector of a word as it is written, or else in lower case."""
        own = self.words.get(word)
        return self.words.get(word.lower()) if own is None else own

    def add(self, word: str, vector: NDArray[np.floating], where: str) -> None:
        """Add a vector, unless its word has one already. Raises `DataError` if it is not finite in float32."""
        if word in self.words:
            self.repeated += 1
            return
        with np.errstate(over="ignore"):
            self.words[word] = vector.astype(np.float32)
        if not np.isfinite(self.words[word]).all():
            raise DataError(f"{where}: a number that is not finite")


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
    with opened(path) as file:
        lines = enumerate(raw_lines(file, str(path), _LONGEST_LINE), start=1)
        _, first = next(lines, (1, b""))
        first = first.removeprefix(BOM)
        found, count = _begin(first, path)
        for number, line in lines if count is not None else chain([(1, first)], lines):
            found.read += 1
            _take(line.rstrip(b" \r\n"), found, known, f"{path}:{number}")
    if count is not None and count != found.read:
        raise DataError(f"{path}: its first line says {count} words, there are {found.read}")
    return found


def _begin(line: bytes, path: Path) -> tuple[Vectors, int | None]:
    """Empty vectors of the right width, and the number of words if the first line gives it."""
    first = line.split()
    counted = len(first) == 2 and all(part.isdigit() and len(part) < 11 for part in first)
    count, width = map(int, first) if counted else (1, len(first) - 1)
    if not 1 <= width <= _WIDEST or not 1 <= count <= _MOST:
        raise DataError(
            f"{path}:1: expected the count of words and the width of their vectors (1 to {_WIDEST}), "
            "or a word and its numbers"
        )
    return Vectors(width), count if counted else None


def _take(line: bytes, found: Vectors, known: dict[bytes, str], where: str) -> None:
    if line.count(b" ") < found.width:
        raise DataError(f"{where}: expected a word and {found.width} numbers")
    word = known.get(line.partition(b" ")[0])
    if word is None or line.count(b" ") > found.width:  # words with spaces are not used
        return
    try:
        found.add(word, np.array(line.split(b" ")[1:]).astype(np.float64), where)
    except ValueError:
        raise DataError(f"{where}: expected numbers after {word[:40]!r}") from None


def _from_tensors(path: Path, wanted: frozenset[str]) -> Vectors:
    try:
        with raised_as(DataError, f"{path}: cannot be read"), files.opened(path) as file:
            entries = tensor_files.header(file).entries
            if entries.keys() != {"words", "vectors"}:
                raise DataError(f"{path}: expected two tensors, `words` and `vectors`")
            vectors, letters = entries["vectors"], entries["words"]
            shape = vectors.shape
            if len(shape) != 2 or not 1 <= shape[1] <= _WIDEST or not 0 < shape[0] <= _MOST:
                raise DataError(f"{path}: `vectors` has shape {shape}, expected words x width")
            if vectors.dtype not in _FLOATS or letters.dtype != "U8":
                raise DataError(f"{path}: expected floating-point `vectors` and bytes of `words`")
            file.seek(letters.offset)
            words = file.read(letters.size).decode("utf-8").split("\n")
            if len(words) != shape[0]:
                raise DataError(f"{path}: {len(words)} words and {shape[0]} vectors")
            found = Vectors(shape[1], read=shape[0])
            size = vectors.size // shape[0]
            for row, word in enumerate(words):
                if word in wanted:
                    file.seek(vectors.offset + row * size)
                    numbers = np.frombuffer(file.read(size), _FLOATS[vectors.dtype])
                    found.add(word, numbers.reshape(shape[1]), f"{path}: vector {row}")
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}: byte {fault.start + 1} of `words` is not UTF-8") from None
    except ValueError as fault:  # also where the file is cut short while it is read
        raise DataError(f"{path}: corrupted or truncated: {one_line(fault)}") from None
    return found
