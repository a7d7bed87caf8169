"""A memory as a file: safetensors, checked on the way in, whole on the way out.

Tensors ``key`` and ``value`` (absent where values are the keys), ``payloads`` and ``names``, the keys
that were strings (each the bytes of a JSON list in UTF-8: the header that the format has for text
ends at 100 MB), ``score.*`` (parameters).
Metadata: ``format``, ``version``, ``score``, ``normaliser`` and ``encoder`` as JSON, and ``sha256``
of all the rest. Files of earlier versions have no ``sha256``: they open without this check.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from regard import files, tensor_files
from regard.attention.normalisers import CLASSES as NORMALISERS
from regard.attention.scores.by_name import build
from regard.attention.scores.score import CLASSES as SCORES
from regard.memory.lists import LISTS, as_bytes, from_bytes, no_constant
from regard.memory.ngrams import CharacterNgrams

FORMAT, VERSION = "regard.memory", "1"
CHECKSUM = "sha256"
# The width of vectors, and the absolute value of a setting.
WIDEST, LARGEST = 1 << 20, 1e30
# The classes that a file may name; those that own parameters are passed when it is opened.
CLASSES: dict[str, Mapping[str, Any]] = {
    "score": SCORES,
    "normaliser": NORMALISERS,
    "encoder": {"ngrams": CharacterNgrams},
}


class MemoryFileError(ValueError):
    """A file that is not a memory, or not a sound one; the message begins with its path."""


@dataclass
class Contents:
    """The contents of a memory's file."""

    key: Tensor | None
    value: Tensor | None
    payloads: list[Any] | None
    names: list[str | None] | None
    score: Any
    normaliser: Any
    encoder: Any


def write_memory(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write a file that appears under its name as a whole, or not at all."""
    tensors = {"key": contents.key, "value": contents.value}
    for name in LISTS:
        if (items := getattr(contents, name)) is not None:
            tensors[name] = as_bytes(name, items)
    if isinstance(contents.score, nn.Module):
        tensors |= {f"score.{name}": role for name, role in contents.score.state_dict().items()}
    stored = {name: t.detach().cpu().contiguous() for name, t in tensors.items() if t is not None}
    for name, tensor in stored.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds infinities or NaN: a memory of them cannot be saved")
    metadata = {"format": FORMAT, "version": VERSION}
    for role in CLASSES:
        metadata[role] = json.dumps(describe(role, getattr(contents, role)))
    metadata[CHECKSUM] = _checksum(stored, metadata)
    with files.replacing(path) as unfinished:
        try:
            save_file(stored, unfinished, metadata)
        except SafetensorError as problem:
            raise OSError(f"{os.fspath(path)}: cannot be written: {problem}") from problem


def read_memory(
    path: str | os.PathLike[str], score: Any = None, normaliser: Any = None, encoder: Any = None
) -> Contents:
    """Read and check a file; ``score``, ``normaliser`` and ``encoder`` go before the saved ones.

    Raises:
        MemoryFileError: If anything in it is not as `write_memory` leaves it, or has changed since.
        OSError: If it cannot be read.
    """
    source = Path(path)
    with _blaming(source):
        if source.exists() and not source.is_file() and not source.is_dir():
            _refuse("not a regular file")
        tensors, metadata = tensor_files.read(source)
        _check_metadata(metadata)
        checksum = metadata.get(CHECKSUM)
        if checksum is not None and checksum != _checksum(tensors, metadata):
            _refuse("damaged: its checksum is not that of its contents")
        passed = {"score": score, "normaliser": normaliser, "encoder": encoder}
        components = {name: component(name, metadata.get(name), passed[name]) for name in CLASSES}
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                _refuse(f"tensor {name!r} holds infinities or NaN")
        stored = {name: tensors.pop(name, None) for name in LISTS}
        parameters = {
            name.removeprefix("score."): tensors.pop(name)
            for name in list(tensors)
            if name.startswith("score.")
        }
        key, value = tensors.pop("key", None), tensors.pop("value", None)
        if tensors:
            _refuse(f"unexpected tensor {next(iter(tensors))!r}")
        _check_entries(key, value)
        if encoder is None and components["encoder"] is not None:
            check_width(components["encoder"].width, key)
        if isinstance(components["score"], str):
            width = None if key is None else key.shape[-1]
            components["score"] = build(components["score"], width, width)
        if parameters:
            if not isinstance(components["score"], nn.Module):
                _refuse("saved with a score that has parameters: pass score= to open it")
            components["score"].load_state_dict(parameters)
        entries = 0 if key is None else key.shape[-2]
        lists = {
            name: None if each is None else from_bytes(name, each, entries)
            for name, each in stored.items()
        }
        return Contents(key, value, **lists, **components)


@contextmanager
def _blaming(source: Path) -> Iterator[None]:
    try:
        yield
    except MemoryFileError as problem:
        raise MemoryFileError(f"{source}: {problem}") from None
    except (RuntimeError, TypeError, ValueError, RecursionError) as problem:
        raise MemoryFileError(f"{source}: damaged, or not a memory: {problem}") from problem


def _refuse(reason: str) -> NoReturn:
    raise MemoryFileError(reason)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        _refuse("not a memory that was saved by Regard")
    if metadata.get("version") != VERSION:
        _refuse(f"format version {metadata.get('version')}, this Regard reads {VERSION}")
    # A flipped bit in the name of the checksum would otherwise leave the file unchecked.
    for name in metadata.keys() - {"format", "version", CHECKSUM, *CLASSES}:
        _refuse(f"unknown metadata {name!r}: damaged, or saved by a newer Regard")


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The sha256 of the contents of a file, in whichever order the file has them."""
    described = {name: text for name, text in metadata.items() if name != CHECKSUM}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_entries(key: Tensor | None, value: Tensor | None) -> None:
    if key is None:
        if value is not None:
            _refuse("values without keys")
        return
    for name, tensor in (("key", key), ("value", key if value is None else value)):
        if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            _refuse(f"tensor {name!r} has type {tensor.dtype}")
        if tensor.dim() < 2 or tensor.shape[-1] < 1 or tensor.shape[:-1] != key.shape[:-1]:
            _refuse(f"tensor {name!r} has shape {tuple(tensor.shape)}, keys {tuple(key.shape)}")


def check_width(width: int, key: Tensor | None) -> None:
    """Refuse an encoder whose vectors are not as wide as the keys, or enormous where there are no keys."""
    if key is not None and width != key.shape[-1]:
        _refuse(f"its encoder makes vectors of width {width}, its keys have {key.shape[-1]}")
    if width > WIDEST:
        _refuse(f"its encoder makes vectors of width {width}, at most {WIDEST}")


def describe(role: str, component: Any) -> dict[str, Any] | None:
    """None for the default, the name and fields of one of ours, or only that it is another."""
    if component is None:
        return None
    name = type(component).__name__
    if _class(role, name) is type(component):
        return {"name": name, "fields": asdict(component)}
    return {"name": "custom"}


def _class(role: str, name: object) -> Any:
    """The dataclass of this name that may fill the role, or None."""
    ours = (kind for kind in CLASSES[role].values() if kind.__module__.startswith("regard."))
    return next((kind for kind in ours if kind.__name__ == name and is_dataclass(kind)), None)


def component(role: str, stored: str | None, passed: Any) -> Any:
    """The score, normaliser or encoder: the one that the caller passed, or as it was described."""
    if passed is not None or stored is None:
        return passed
    described = json.loads(stored, parse_constant=no_constant)
    if described is None or (role == "encoder" and described == {"name": "custom"}):
        return None
    if not isinstance(described, dict):
        _refuse(f"its {role} is not described")
    name, options = described.get("name"), described.get("fields", {})
    if name == "custom":
        _refuse(f"saved with a {role} of its own: pass {role}= to open it")
    kind = _class(role, name)
    if kind is None:
        _refuse(f"unknown {role} {name!r}")
    if not isinstance(options, dict) or set(options) != {field.name for field in fields(kind)}:
        _refuse(f"its {role} {name} has other settings than this Regard's")
    for field, value in options.items():
        is_number = value is None or (isinstance(value, int | float) and abs(value) <= LARGEST)
        if field != "gradient" and not is_number:
            _refuse(f"its {role} {name} has {field} {value!r}")
    return kind(**options)
