"""Scenes of files: queries and keys that were saved by any program."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard import tensor_files
from regard.attention import masks
from regard.attention.attend import look
from regard.errors import DataError, memory_named, raised_as
from regard.explorer.contract import Attention, Kind, Scene, Sequence
from regard.tensor_files import TensorFileError, UnreadTypeError

NAMES = ("query", "key")
# Weights that one query of every head has: the measures of heads compute so many at once.
MOST_WEIGHTS = 1 << 25
# Numbers of the keys when each is repeated for the heads that share it.
MOST_NUMBERS = 1 << 30


def open_file(path: str | os.PathLike[str]) -> Scene:
    """The scene of a .safetensors file.

    It has the tensors `query` (…heads, queries, width) and `key` (…key heads, keys, width), where key heads divides
    heads. Its metadata may have `tokens`, a JSON list with a string for each key, and `mask`, which can be "causal".

    Raises:
        DataError: the file cannot be read, its tensors or metadata do not fit, or its shapes are too large together.
        TrainingError: memory ran out.
    """
    path = Path(path)
    with memory_named(f"while reading {path}", "the number of heads, tokens or channels in it"):
        return _scene(path)


def _scene(path: Path) -> Scene:
    query, key, metadata = _read(path)
    (heads, queries, _), (key_heads, keys, _) = query.shape, key.shape
    mask = metadata.get("mask", "")
    if mask not in ("", "causal"):
        raise DataError(f'{path}: mask is {mask!r} in its metadata: "causal" is the only one')
    if mask and queries > keys:
        raise DataError(f"{path}: a causal mask needs at least {queries} keys, there are {keys}")
    rule = masks.causal(align="end") if mask else None
    shared = key if key_heads == 1 else key.repeat_interleave(heads // key_heads, 0)
    shown_look = look(query, shared, mask=rule)
    tokens = _tokens(path, metadata.get("tokens"), keys)
    if queries == keys:
        sides = [Sequence("tokens", tokens)]
    else:
        read = tokens[keys - queries :] if mask else list(map(str, range(queries)))
        sides = [Sequence("queries", read), Sequence("keys", tokens)]
    kind: Kind = "causal" if mask else "self" if queries == keys else "cross"
    return Scene(path.name, sides, [Attention(path.stem, kind, shown_look, 0, len(sides) - 1)])


def _read(path: Path) -> tuple[Tensor, Tensor, Mapping[str, str]]:
    """The queries and keys, each (heads, tokens, width) in float32, and the metadata."""
    try:
        with raised_as(DataError, f"{path}: cannot be read"):
            tensors, metadata = tensor_files.read(path, NAMES)
    except UnreadTypeError as fault:
        raise DataError(f"{path}: {fault}: save it as float32") from None
    except TensorFileError as fault:
        raise DataError(f"{path}: not a safetensors file: {fault}") from None
    missing = sorted(set(NAMES) - tensors.keys())
    if missing:
        raise DataError(
            f'{path}: there is no tensor "{missing[0]}":'
            ' expected "query" and "key", each (heads, tokens, width)'
        )
    query, key = (tensors[name] for name in NAMES)
    shapes = f"query has shape {list(query.shape)} and key {list(key.shape)}"
    if min(query.ndim, key.ndim) < 2 or 0 in (*query.shape, *key.shape):
        raise DataError(f"{path}: {shapes}: expected (heads, tokens, width), none of them 0")
    query, key = (each.reshape(-1, *each.shape[-2:]) for each in (query, key))
    if query.shape[-1] != key.shape[-1] or len(query) % len(key):
        raise DataError(
            f"{path}: {shapes}: expected one width, and heads that are a multiple of the key heads"
        )
    heads, (key_heads, keys, width) = len(query), key.shape
    if heads * keys > MOST_WEIGHTS:
        raise DataError(
            f"{path}: {shapes}: one query of {heads:,} heads has {heads * keys:,} weights; "
            f"at most {MOST_WEIGHTS:,} are shown: save fewer heads or keys"
        )
    if key_heads > 1 and heads * keys * width > MOST_NUMBERS:
        raise DataError(
            f"{path}: {shapes}: the keys of {heads:,} heads have {heads * keys * width:,} numbers; "
            f"at most {MOST_NUMBERS:,} are read: save fewer heads or keys"
        )
    if not (query.is_floating_point() and key.is_floating_point()):
        raise DataError(f"{path}: query is {query.dtype} and key {key.dtype}: expected floats")
    if not (torch.isfinite(query).all() and torch.isfinite(key).all()):
        raise DataError(f"{path}: a query or key has a number that is not finite")
    return query.float(), key.float(), metadata


def _tokens(path: Path, text: str | None, keys: int) -> list[str]:
    if text is None:
        return list(map(str, range(keys)))
    try:
        tokens = json.loads(text)
    except (ValueError, RecursionError):
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
        raise DataError(f"{path}: tokens in its metadata is not a JSON list of strings")
    if len(tokens) != keys:
        raise DataError(f"{path}: tokens in its metadata has {len(tokens)} strings for {keys} keys")
    return tokens
