"""Files of tensors in the format safetensors, with a check of the header before any tensor is read.

They are never mapped: a mapped file that another program cuts short ends the process that reads it (SIGBUS).
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
from torch import Tensor

from regard import files
from regard.errors import one_line

_LONGEST_HEADER, _MOST_TENSORS, _MOST_AXES = 10_000_000, 20_000, 64
_METADATA = "__metadata__"
# Bytes of a number.
_SIZES = (
    dict.fromkeys(["BOOL", "U8", "I8", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ"], 1)
    | dict.fromkeys(["U16", "I16", "F16", "BF16"], 2)
    | dict.fromkeys(["U32", "I32", "F32"], 4)
    | dict.fromkeys(["U64", "I64", "F64", "C64"], 8)
)


class TensorFileError(ValueError):
    """A file that is not a whole safetensors file. The text says why, without the path."""


class PickledError(TensorFileError):
    """A pickle or an archive instead of a safetensors file."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its type ("F32"), its shape, and its first byte in the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * _SIZES[self.dtype]


@dataclass(frozen=True)
class Header:
    """The tensors of a file by name, and its metadata."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """The tensors and the metadata of a file.

    Raises:
        TensorFileError: it is not a whole safetensors file.
        OSError: it cannot be read, or is not an ordinary file.
    """
    with files.opened(Path(path)) as file:
        found = header(file)
        file.seek(0)
        return load(file.read()), found.metadata


def load(content: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a file. Raises `TensorFileError`."""
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as fault:
        raise TensorFileError(one_line(fault)) from None


def header(file: BinaryIO) -> Header:
    """The header of a file that is open at its start. Its tensors fill the file, and no name stands twice in it.

    Raises `TensorFileError`.
    """
    size, start = os.fstat(file.fileno()).st_size, file.read(8)
    length = int.from_bytes(start, "little")
    if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
        # A header may begin with the bytes of a pickle, so this is checked only when its length is wrong.
        if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
            raise PickledError(
                "a pickle or zip archive under the name of weights: refusing to unpickle; "
                "only safetensors files are read"
            )
        raise TensorFileError("its header does not fit the file")
    try:
        table = json.loads(file.read(length).decode(), object_pairs_hook=_once)
    except TensorFileError:
        raise
    except (ValueError, RecursionError) as fault:
        raise TensorFileError(f"its header is no JSON: {one_line(fault)}") from None
    if not isinstance(table, dict):
        raise TensorFileError("its header is no table")
    metadata = table.pop(_METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise TensorFileError("its metadata is no table of texts")
    if len(table) > _MOST_TENSORS:
        raise TensorFileError(f"its header names {len(table)} tensors")
    entries = {name: _entry(name, described, 8 + length) for name, described in table.items()}
    end = 8 + length
    for name, entry in sorted(entries.items(), key=lambda each: (each[1].offset, each[1].size)):
        if entry.offset != end:
            raise TensorFileError(f"tensor {name!r} does not begin where the one before ends")
        end += entry.size
    if end != size:
        raise TensorFileError(f"its tensors end at byte {end}, the file has {size}")
    return Header(entries, metadata)


def _entry(name: str, described: Any, begin: int) -> Entry:
    """A tensor as the header describes it; the bytes of the tensors begin at `begin`."""
    match described:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [first, last]}:
            counts = [*shape, first, last]
            whole = all(type(each) is int and 0 <= each < 2**63 for each in counts)
            if whole and len(described) == 3 and len(shape) <= _MOST_AXES and dtype in _SIZES:
                entry = Entry(dtype, tuple(shape), begin + first)
                if entry.size == last - first:
                    return entry
    raise TensorFileError(f"tensor {name!r} has a type, shape or place that cannot be")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise TensorFileError("a name stands twice in its header")
    return table
