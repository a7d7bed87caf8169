"""Scenes of files: queries and keys that were saved by any program."""

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.attention import masks
from regard.attention.attend import look
from regard.errors import DataError, one_line, raised_as
from regard.explorer.contract import Attention, Kind, Scene, Sequence

NAMES = ("query", "key")


def open_file(path: str | os.PathLike[str]) -> Scene:
    """The scene of a .safetensors file.

    It has the tensors `query` (…heads, queries, width) and `key` (…key heads, keys, width), where key heads divides
    heads. Its metadata may have `tokens`, a JSON list with a string for each key, and `mask`, which can be "causal".

    Raises:
        DataError: the file cannot be read, or its tensors or metadata do not fit.
    """
    path = Path(path)
    query, key, metadata = _read(path)
    (heads, queries, _), (own, keys, _) = query.shape, key.shape
    mask = metadata.get("mask", "")
    if mask not in ("", "causal"):
        raise DataError(f'{path}: mask is {mask!r} in its metadata: "causal" is the only one')
    if mask and queries > keys:
        raise DataError(f"{path}: a causal mask needs at least {queries} keys, there are {keys}")
    rule = masks.causal(align="end") if mask else None
    made = look(query, key.repeat_interleave(heads // own, 0), mask=rule)
    tokens = _tokens(path, metadata.get("tokens"), keys)
    if queries == keys:
        sides = [Sequence("tokens", tokens)]
    else:
        read = tokens[keys - queries :] if mask else list(map(str, range(queries)))
        sides = [Sequence("queries", read), Sequence("keys", tokens)]
    kind: Kind = "causal" if mask else "self" if queries == keys else "cross"
    return Scene(path.name, sides, [Attention(path.stem, kind, made, 0, len(sides) - 1)])


def _read(path: Path) -> tuple[Tensor, Tensor, dict[str, str]]:
    """The queries and keys, each (heads, tokens, width) in float32, and the metadata."""
    try:
        with raised_as(DataError, f"{path}: cannot be read"), safe_open(path, "pt") as opened:
            missing = sorted(set(NAMES) - set(opened.keys()))
            if missing:
                raise DataError(
                    f'{path}: there is no tensor "{missing[0]}":'
                    ' expected "query" and "key", each (heads, tokens, width)'
                )
            query, key = (opened.get_tensor(name) for name in NAMES)
            metadata = dict(opened.metadata() or {})
    except SafetensorError as fault:
        raise DataError(f"{path}: not a safetensors file: {one_line(fault)}") from None
    shapes = f"query has shape {list(query.shape)} and key {list(key.shape)}"
    if min(query.ndim, key.ndim) < 2 or 0 in (*query.shape, *key.shape):
        raise DataError(f"{path}: {shapes}: expected (heads, tokens, width), none of them 0")
    query, key = (each.reshape(-1, *each.shape[-2:]) for each in (query, key))
    if query.shape[-1] != key.shape[-1] or len(query) % len(key):
        raise DataError(
            f"{path}: {shapes}: expected one width, and heads that are a multiple of the key heads"
        )
    if not (query.is_floating_point() and key.is_floating_point()):
        raise DataError(f"{path}: query is {query.dtype} and key {key.dtype}: expected floats")
    if not (torch.isfinite(query).all() and torch.isfinite(key).all()):
        raise DataError(f"{path}: a query or key has a number that is not finite")
    return query.float(), key.float(), metadata


def _tokens(path: Path, given: str | None, keys: int) -> list[str]:
    if given is None:
        return list(map(str, range(keys)))
    try:
        tokens = json.loads(given)
    except (ValueError, RecursionError):
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
        raise DataError(f"{path}: tokens in its metadata is not a JSON list of strings")
    if len(tokens) != keys:
        raise DataError(f"{path}: tokens in its metadata has {len(tokens)} strings for {keys} keys")
    return tokens
