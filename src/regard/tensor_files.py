"""Files of tensors in the format safetensors, with a check of the header before any tensor is read.

They are never mapped: a mapped file that another program cuts short ends the process that reads it (SIGBUS).
"""

import json
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard import files
from regard.errors import one_line

_LONGEST_HEADER, _MOST_TENSORS, _MOST_AXES = 10_000_000, 20_000, 64
_METADATA = "__metadata__"
# The types that are read. A file may have tensors of others, which are not.
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}


class TensorFileError(ValueError):
    """A file that is not a whole safetensors file. The text says why, without the path."""


class PickledError(TensorFileError):
    """A pickle or an archive instead of a safetensors file."""


class UnreadTypeError(TensorFileError):
    """A tensor of a type that is not read, in a file that may be whole."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its type ("F32"), its shape, its first byte in the file, and its number of bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class Header:
    """The tensors of a file by name, and its metadata."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read(
    path: str | os.PathLike[str], names: Container[str] | None = None
) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """The tensors of a file, or those of `names` that it has, and its metadata.

    Raises:
        TensorFileError: it is not a whole safetensors file, or a tensor to read is of a type that is not read.
        OSError: it cannot be read, or is not an ordinary file.
    """
    with files.opened(Path(path)) as file:
        declared = header(file)
        entries = {n: e for n, e in declared.entries.items() if names is None or n in names}
        check_types(entries)
        return {name: _tensor(file, entry) for name, entry in entries.items()}, declared.metadata


def check_types(entries: Mapping[str, Entry]) -> None:
    """Raise `UnreadTypeError` for the first tensor of a type that is not read."""
    for name, entry in entries.items():
        if entry.dtype not in _TYPES:
            raise UnreadTypeError(f"tensor {name!r} has type {entry.dtype[:20]}, which is not read")


def _tensor(file: BinaryIO, entry: Entry) -> Tensor:
    content = bytearray(entry.size)
    file.seek(entry.offset)
    if file.readinto(content) < entry.size:  # type: ignore[attr-defined]
        raise TensorFileError("it was cut short while it was read")
    if not content:  # torch reads no empty buffer
        return torch.empty(entry.shape, dtype=_TYPES[entry.dtype])
    return torch.frombuffer(content, dtype=_TYPES[entry.dtype]).reshape(entry.shape)


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
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].size)):
        if entry.offset != end:
            raise TensorFileError(f"tensor {name!r} does not begin where the one before ends")
        end += entry.size
    if end != size:
        raise TensorFileError(f"its tensors end at byte {end}, the file has {size}")
    return Header(entries, metadata)


def _entry(name: str, described: Any, begin: int) -> Entry:
    """A tensor as the header describes it; the bytes of the tensors begin at `begin`."""
    match described:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [first, last]} if (
            len(described) == 3
        ):
            pass
        case _:
            raise TensorFileError(f"tensor {name!r} is not described by type, shape and place")
    if len(shape) > _MOST_AXES or not all(map(_counts, shape)):
        raise TensorFileError(f"tensor {name!r} has a shape that cannot be: {str(shape)[:60]}")
    if not (_counts(first) and _counts(last) and first <= last):
        raise TensorFileError(
            f"tensor {name!r} has a place that cannot be: {str([first, last])[:60]}"
        )
    if dtype in _TYPES and prod(shape) * _TYPES[dtype].itemsize != last - first:
        raise TensorFileError(f"tensor {name!r} has {last - first} bytes, its shape needs others")
    return Entry(dtype, tuple(shape), begin + first, last - first)


def _counts(value: Any) -> bool:
    """Whether a value is a whole number of 63 bits, from 0."""
    return type(value) is int and 0 <= value < 2**63


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise TensorFileError("a name stands twice in its header")
    return table
