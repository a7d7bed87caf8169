"""Weights in and out of safetensors files: whole or not at all, checked before they are believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from regard import files
from regard.errors import CheckpointError, CorruptedError
from regard.translation import checksums

# The longest header that a file of ours could have, and the most tensors: each takes time to make, even of nothing.
_LONGEST_HEADER, _MOST_TENSORS = 10_000_000, 20_000
_SOON_READ = 2**27


Shapes = Mapping[str, tuple[int, ...]]


def dump(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a file of tensors."""
    flat = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    return safetensors.torch.save(flat)


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to `path`, which holds the whole file or what it held before."""
    files.write(path, dump(tensors))


def load(
    path: Path,
    checksum: str | None = None,
    check: Callable[[Shapes], object] = lambda shapes: None,
) -> dict[str, Tensor]:
    """The tensors of a file.

    Args:
        path: the file.
        checksum: its sha256, where that is known.
        check: called with the shape of each tensor as the header gives it, before any tensor is read;
            it raises what it does not accept.

    Raises:
        CheckpointError: it is no whole safetensors file, or has another checksum; names the file.
    """
    try:
        with files.opened(path) as file:
            shapes = _shapes(path, _table(path, file))
            file.seek(0)
            try:
                check(shapes)
            except CheckpointError:
                # What can be read at once is told apart: damaged, or another model's.
                if os.fstat(file.fileno()).st_size <= _SOON_READ:
                    checksums.compare(file.read(), checksum, path)
                raise
            content = file.read()
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read: {fault.strerror}") from None
    checksums.compare(content, checksum, path)
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as fault:
        raise _corrupted(path, " ".join(str(fault).split())[:200]) from None


def check_header(path: Path) -> None:
    """Refuse, from its first bytes alone, a file that cannot be safetensors of ours."""
    try:
        with files.opened(path) as file:
            _table(path, file)
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read: {fault.strerror}") from None


def _table(path: Path, file: BinaryIO) -> dict[str, dict[str, Any]]:
    """The entry of each tensor in the header, checked against the size of the file."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8 or length > _LONGEST_HEADER or length < 2:
        # Only now: a header of 640 bytes begins like a pickle too.
        if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
            raise CheckpointError(
                f"{path}: a pickle or zip archive under the name of weights: refusing to unpickle; "
                "only safetensors files are read"
            )
        raise _corrupted(path, "its header does not fit the file")
    return _checked_table(path, file.read(length), size - 8 - length)


def _checked_table(path: Path, header: bytes, data: int) -> dict[str, dict[str, Any]]:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a name stands twice in its header")
        return table

    try:
        # Before it is read: what names a hundred thousand tensors takes a second to make tables of.
        if (tensors := header.count(b'"data_offsets"')) > _MOST_TENSORS:
            raise ValueError(f"its header names {tensors} tensors")
        table = json.loads(header.decode("utf-8"), object_pairs_hook=once)
        if not isinstance(table, dict):
            raise ValueError("its header is no table")
        table.pop("__metadata__", None)
        if len(table) > _MOST_TENSORS:
            raise ValueError(f"its header names {len(table)} tensors")
        spans = sorted(tuple(entry["data_offsets"]) for entry in table.values())
        end = 0
        for start, stop in spans:
            if start != end or stop < start:
                raise ValueError("its tensors overlap or leave holes")
            end = stop
        if end != data:
            raise ValueError("its tensors do not fill the file")
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as fault:
        raise _corrupted(path, str(fault)[:200]) from None
    return table


def _shapes(path: Path, table: dict[str, dict[str, Any]]) -> Shapes:
    try:
        return {name: tuple(entry["shape"]) for name, entry in table.items()}
    except (KeyError, TypeError) as fault:
        raise _corrupted(path, f"a tensor without a shape: {fault}") from None


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Give a model its weights, any floating type. Raises what `check_fits` raises, and then changes nothing."""
    check_fits(module, tensors, path)
    with torch.no_grad():
        for name, wanted in unique(module).items():
            wanted.copy_(tensors[name])


def check_fits(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise `CheckpointError` naming the first tensor that does not fit the model or is not finite."""
    check_shapes(module, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    for name, wanted in sorted(unique(module).items()):
        found = tensors[name]
        if found.is_floating_point() != wanted.is_floating_point():
            raise CheckpointError(
                f"{path}: tensor {name} is {found.dtype}, expected {wanted.dtype}"
            )
        # In the model's precision: a large float64 is no number in float32.
        if found.is_floating_point() and not bool(torch.isfinite(found.to(wanted.dtype)).all()):
            raise CheckpointError(f"{path}: tensor {name} holds numbers that are not finite")


def check_shapes(module: nn.Module, shapes: Shapes, path: Path) -> None:
    """Raise `CheckpointError` naming the first tensor that the model lacks, needs, or has in another shape."""
    expected = unique(module)
    for name in sorted(expected.keys() | shapes.keys()):
        if name not in shapes:
            raise CheckpointError(f"{path}: tensor {name} is missing")
        if name not in expected:
            raise CheckpointError(f"{path}: tensor {name} has no place in this model")
        if shapes[name] != tuple(expected[name].shape):
            raise CheckpointError(
                f"{path}: tensor {name} has shape {shapes[name]}, "
                f"the configuration asks for {tuple(expected[name].shape)}"
            )


def unique(module: nn.Module) -> dict[str, Tensor]:
    """The state of a model with each shared tensor once, under its first name."""
    seen: dict[int, str] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen[id(tensor)] = name
            state[name] = tensor.detach()
    return state


def _corrupted(path: Path, why: str) -> CorruptedError:
    return CorruptedError(f"{path}: corrupted or truncated: {why}")
