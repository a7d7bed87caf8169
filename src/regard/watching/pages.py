"""The page of a watch: one HTML file with the weights of each head and the tokens."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.watching.errors import WatchError
from regard.watching.table import Subject, places, tokens_read
from regard.watching.tokens import EmbeddingCall

PAGE, ALIGNMENT = "regard.viewing.page", "regard.viewing.alignment"  # of a higher package
LARGEST = 10 * 10**6  # bytes of a page, approximately
LONGEST = 60  # characters of a token
NUMBER = 8  # bytes of a weight

Tokens = Sequence[str] | Mapping[str, Sequence[str]]


def write(
    path: str | os.PathLike[str],
    subjects: Iterable[Subject],
    embedded: list[EmbeddingCall],
    *,
    tokens: Tokens | None = None,
    tokenizer: Any = None,
    entry: int = 0,
    title: str = "",
) -> Path:
    """Write the page; arguments as for `Seen.page`."""
    shown = [subject for subject in subjects if prod(subject.look.shape)]
    if not shown:
        raise WatchError(
            "no attention that was seen has both queries and keys: there is nothing to show"
        )
    labels = _labels(shown, embedded, tokens, tokenizer, entry)
    mean = _is_reduced(shown, labels)
    layers: dict[str, Any] = {}
    alignment = import_module(ALIGNMENT).Alignment
    for subject, (queries, keys) in zip(shown, labels, strict=True):
        averaged = mean and subject.heads > 1
        name = f"{subject.name}, mean of {subject.heads} heads" if averaged else subject.name
        try:
            own = [
                alignment(each, queries, keys, readable=may.cpu().numpy())
                for each, may in zip(*_weights(subject, entry, mean), strict=True)
            ]
        except ValueError as fault:
            raise WatchError(f"{subject.name}: {fault}") from None
        layers[name] = own if averaged else dict(zip(subject.numbers, own, strict=True))
    written: Path = import_module(PAGE).write(path, layers, title=title)
    return written


def _is_reduced(shown: list[Subject], labels: list[tuple[list[str], list[str]]]) -> bool:
    """Whether the page shows the mean of the heads, because all heads would be too large."""
    words = sum(len(json.dumps(each)) for each in labels)
    cells = [prod(subject.look.shape[-2:]) for subject in shown]
    every = sum(n * subject.heads for n, subject in zip(cells, shown, strict=True))
    if words + NUMBER * every <= LARGEST:
        return False
    size, most = f"{(words + NUMBER * every) / 1e6:,.0f} MB", f"{LARGEST / 1e6:.0f} MB"
    if words + NUMBER * sum(cells) > LARGEST:
        raise WatchError(
            f"the page would have {size}, the limit is {most}: pass names= with a few of the"
            f" {len(shown)} attentions, or watch with layers= or rows=; map() and plot() have no limit"
        )
    warnings.warn(
        f"the page of all heads would have {size}, the limit is {most}: it shows the mean of the heads"
        " of each attention; pass names=, or watch with layers= or heads=, for single heads",
        RuntimeWarning,
        stacklevel=4,
    )
    return True


def _weights(subject: Subject, entry: int, mean: bool) -> tuple[Tensor, Tensor]:
    """The weights of one batch entry and which keys may be read, both (heads or 1, queries, keys)."""
    entries, (*front, queries, keys) = subject.entries, subject.look.shape
    if not -entries <= entry < entries:
        raise WatchError(f"entry is {entry}, but {subject.name} has {entries} batch entries")
    outer = front[:-1] if subject.heads > 1 else front
    look = subject.look[tuple(map(int, np.unravel_index(entry % entries, outer)))]
    with torch.no_grad():
        weights, may = look.weights(), look.readable()
    may = torch.ones_like(weights, dtype=torch.bool) if may is None else may.expand_as(weights)
    weights, may = (each.reshape(subject.heads, queries, keys) for each in (weights, may))
    return (weights.mean(0, keepdim=True), may.any(0, keepdim=True)) if mean else (weights, may)


def _labels(
    shown: list[Subject],
    embedded: list[EmbeddingCall],
    tokens: Tokens | None,
    tokenizer: Any,
    entry: int,
) -> list[tuple[list[str], list[str]]]:
    """The words of the queries and of the keys of each attention; positions if they are unknown."""
    if tokens is None:
        found = [_decoded(subject, embedded, tokenizer, entry) for subject in shown]
    else:
        sides = _sides(tokens, shown)
        found = [_given(subject, sides) for subject in shown]
        if not any(map(any, found)):
            given = ", ".join(sorted({str(len(words)) for words in sides.values()}))
            lengths = sorted({length for subject in shown for length in subject.look.shape[-2:]})
            raise WatchError(
                f"tokens has {given} strings, but the attentions have {lengths} queries and keys:"
                " pass one string for each position, special tokens included"
            )
    return [
        (
            _short(query) or list(map(str, places(subject).tolist())),
            _short(key) or list(map(str, range(subject.look.shape[-1]))),
        )
        for subject, (query, key) in zip(shown, found, strict=True)
    ]


def _sides(tokens: Tokens, shown: list[Subject]) -> dict[str, list[str]]:
    """The words of the encoder and of the decoder; the same without cross attention."""
    if isinstance(tokens, Mapping):
        if not tokens.keys() <= {"encoder", "decoder"}:
            raise WatchError(
                f'tokens has the names {list(tokens)}: expected "encoder" and "decoder"'
            )
        return {side: list(map(str, words)) for side, words in tokens.items()}
    if any(subject.kind == "cross" for subject in shown):
        raise WatchError(
            'the model reads two sequences: pass tokens={"encoder": [...], "decoder": [...]}'
        )
    words = list(map(str, tokens))
    return {"encoder": words, "decoder": words}


def _given(subject: Subject, sides: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """The words of the queries and of the keys; none if their number does not fit."""
    queries, keys = subject.look.shape[-2:]
    source, target = sides.get("encoder", []), sides.get("decoder", [])
    if subject.kind == "cross":
        query = target[-queries:] if len(target) >= queries else []
        return query, source if len(source) == keys else []
    own = target if "decoder" in subject.path else source
    return ([own[place] for place in places(subject)], own) if len(own) == keys else ([], [])


def _decoded(
    subject: Subject, embedded: list[EmbeddingCall], tokenizer: Any, entry: int
) -> tuple[list[str], list[str]]:
    """The ids that the model's embedding was called with, as tokens of the tokenizer."""
    if tokenizer is None:
        return [], []
    decode = getattr(tokenizer, "convert_ids_to_tokens", tokenizer)
    if not callable(decode):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}: pass one with convert_ids_to_tokens,"
            " or a function of a list of ids that returns a list of strings"
        )
    ids = tokens_read(subject, embedded, None)
    if ids is None or not -len(ids[0]) <= entry < len(ids[0]):
        return [], []
    query, key = (list(map(str, decode(side[entry].tolist()))) for side in ids)
    return query, key


def _short(words: list[str]) -> list[str]:
    return [word if len(word) <= LONGEST else word[: LONGEST - 1] + "…" for word in words]
