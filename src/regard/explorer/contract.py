"""The data that the front end reads: a header in JSON, and buffers of numbers.

    magic "RGRD" | version, uint32 | length of the header, uint32 | header, JSON in UTF-8 | buffers

All numbers are little endian. The header lists the buffers by offset (from the end of the header) and length. The
front end's side of this contract is explorer-web/src/contract.ts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.looks import Look
from regard.explorer.agreement import Links, Span, agreement
from regard.explorer.tiles import bounds, masked
from regard.viewing import pieces
from regard.watching.extents import Extent
from regard.watching.measures import TokenIds, measures
from regard.watching.routes import rollout

MAGIC, VERSION = b"RGRD", 3
# Weights of all attentions that are sent one by one; above, pictures and the largest of each row.
WHOLE = 1 << 21
PICTURE = 128  # rows and columns of a picture
LARGEST = 8  # keys of each row that are sent beside a picture, fewer if there are many rows
SENT = 600_000  # of such keys, over all rows
DEEP = 1 << 26  # weights of an attention that no file holds
EXACT = 1 << 18  # weights of a head whose small picture comes from all of them
SAMPLED = 1 << 22  # of those, weights from which its measures are computed

Kind = Literal["self", "causal", "cross"]


@dataclass(frozen=True)
class Sequence:
    """Tokens, and the words that they spell.

    Args:
        name: "source", "target", "tokens" ...
        tokens: one string for each position.
        words: (start, stop, text) of each word; none if the tokens are words themselves.
        ids: of the tokens, where they are known; they are compared and not sent.
    """

    name: str
    tokens: list[str]
    words: list[tuple[int, int, str]] = field(default_factory=list)
    ids: Items[int] | None = None

    @property
    def spans(self) -> list[Span]:
        """The tokens of each word; where there are no words, each token."""
        if self.words:
            return [(start, stop) for start, stop, _ in self.words]
        return [(place, place + 1) for place in range(len(self.tokens))]

    @classmethod
    def of_pieces(cls, name: str, tokens: Items[str]) -> Sequence:
        """Pieces of sentencepiece, joined into words.

        >>> Sequence.of_pieces("source", ["▁hou", "se", "</s>"]).words
        [(0, 2, 'house'), (2, 3, '</s>')]
        """
        tokens = list(tokens)
        spans = pieces.spans(tokens)
        words = [(start, stop, pieces.join(tokens[start:stop])) for start, stop in spans]
        return cls(name, tokens, words, list(map(hash, tokens)))


@dataclass(frozen=True, eq=False)
class Attention:
    """A look at all heads of one attention, with the sequences of its rows and columns.

    Args:
        name: such as "decoder.1.cross".
        kind: "self", "causal" or "cross".
        look: (queries, keys) or (heads, queries, keys).
        rows: index of the sequence of its queries.
        columns: index of the sequence of its keys.
        heads: the numbers of the heads in the model; 0, 1, ... if None.
        places: (queries,), the position of each query among the keys, where queries were left out.
        extent: the queries and keys that measures count; all if None.
    """

    name: str
    kind: Kind
    look: Look
    rows: int
    columns: int
    heads: Items[int] | None = None
    places: Tensor | None = None
    extent: Extent | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)."""
        *heads, queries, keys = self.look.shape
        return (prod(heads), queries, keys)


@dataclass(frozen=True, eq=False)
class Scene:
    """All that one run shows.

    Args:
        sequences: the tokens, by index.
        attentions: in the order of their computation.
        translation: the translation and its candidates, where there is one.
        more: further entries of the header.
        links: gold links between the words of two sequences: those of the cross attentions, or of all attentions where
            none is a cross attention.

    Raises:
        ShapeError: a link is outside of the words.
    """

    title: str
    sequences: Items[Sequence]
    attentions: Items[Attention]
    model: str = ""
    translation: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    links: Links | None = None

    def __post_init__(self) -> None:
        for attention in self.attentions:
            if self.links is not None and self.linked(attention):
                keys, queries = (
                    len(self.sequences[at].spans) for at in (attention.columns, attention.rows)
                )
                self.links.check(keys, queries)

    def linked(self, attention: Attention) -> bool:
        """Whether the gold links are between the sequences of an attention."""
        crosses = [each for each in self.attentions if each.kind == "cross"]
        return self.links is not None and attention in (crosses or self.attentions)


def pack(scene: Scene, run: str | None = None, most_weights: int = WHOLE) -> bytes:
    """The bytes of a scene.

    Args:
        scene: the looks and their tokens.
        run: the id by which a server knows this run; None in a file.
        most_weights: how many weights may be sent one by one, over all attentions.
    """
    buffers = _Buffers()
    fits = sum(prod(attention.shape) for attention in scene.attentions) <= most_weights
    rows = sum(prod(attention.shape[:2]) for attention in scene.attentions)
    keys_of_row = 0 if run is not None else min(LARGEST, max(1, SENT // max(1, rows)))
    header = {
        "version": VERSION,
        "title": scene.title,
        "model": scene.model,
        "run": run,
        "sequences": [
            {"name": each.name, "tokens": each.tokens, "words": each.words}
            for each in scene.sequences
        ],
        "attentions": [
            _attention(attention, scene, buffers, fits, keys_of_row, run is None)
            for attention in scene.attentions
        ],
        "translation": scene.translation,
        "links": _links(scene),
        "rollouts": _rollouts(scene, buffers, fits, run is None),
        **scene.more,
        "buffers": buffers.places,
    }
    text = json.dumps(header, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return b"".join([MAGIC, struct.pack("<II", VERSION, len(text)), text, *buffers.contents])


class _Buffers:
    """The buffers of a bundle, and where each of them lies."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.places: list[dict[str, int]] = []

    def add(self, numbers: np.ndarray) -> int:
        """The index of the buffer that now holds these numbers."""
        content = np.ascontiguousarray(numbers).tobytes()
        offset = sum(place["length"] for place in self.places)
        self.contents.append(content)
        self.places.append({"offset": offset, "length": len(content)})
        return len(self.places) - 1


def _links(scene: Scene) -> Any:
    """The gold links, and the attentions that they belong to."""
    if (links := scene.links) is None:
        return None
    names = [attention.name for attention in scene.attentions if scene.linked(attention)]
    return {"of": names, "sure": sorted(links.sure), "possible": sorted(links.possible)}


def _attention(
    attention: Attention,
    scene: Scene,
    buffers: _Buffers,
    fits: bool,
    keys_of_row: int,
    for_file: bool,
) -> dict[str, Any]:
    """The header of an attention. A file gets `keys_of_row` keys of each row; of many weights a server sends each
    head's picture, and the measures, when they are asked for."""
    header: dict[str, Any] = {
        "name": attention.name,
        "kind": attention.kind,
        "rows": attention.rows,
        "columns": attention.columns,
        "heads": list(range(attention.shape[0]) if attention.heads is None else attention.heads),
        "shape": attention.shape,
    }
    if fits or for_file:
        header |= measured(attention, scene)
    if fits:
        header["weights"] = {"buffer": buffers.add(_all_weights(attention))}
    elif for_file:
        header["map"] = _picture(attention, buffers)
        header["top"] = _largest(attention, buffers, keys_of_row)
    return header


def measured(attention: Attention, scene: Scene) -> dict[str, Any]:
    """The measures of the heads of an attention; `sampled` is how many queries they are from, if not from all."""
    rows = _sample(attention) if prod(attention.shape) > DEEP else None
    values = _measures(attention, scene.sequences, rows)
    if rows is None and scene.links is not None and scene.linked(attention):
        keys, queries = (scene.sequences[at].spans for at in (attention.columns, attention.rows))
        values |= _agreements(attention.look, keys, queries, scene.links)
    return {"measures": values, **({} if rows is None else {"sampled": len(rows)})}


def stacks(scene: Scene) -> list[list[Attention]]:
    """The self-attentions of each sequence that a rollout goes over."""
    by_sequence: dict[tuple[int, int], list[Attention]] = {}
    for attention in scene.attentions:
        _, queries, keys = attention.shape
        if attention.kind != "cross" and queries == keys:
            by_sequence.setdefault((attention.rows, attention.columns), []).append(attention)
    return [stack for stack in by_sequence.values() if len(stack) > 1]


def _rollouts(scene: Scene, buffers: _Buffers, fits: bool, for_file: bool) -> list[dict[str, Any]]:
    """The rollout of each stack, where all weights are few; a server computes rows of the others."""
    entries: list[dict[str, Any]] = []
    for stack in stacks(scene):
        entry: dict[str, Any] = {"of": [attention.name for attention in stack]}
        if fits:
            matrix = rollout(
                {attention.name: attention.look for attention in stack},
                len(stack[0].look.shape) > 2,
            )
            assert matrix is not None
            entry["buffer"] = buffers.add(np.asarray(matrix.to(torch.float16).cpu().numpy(), "<f2"))
        elif for_file:
            entry["objection"] = (
                f"all heads have more than {WHOLE:,} weights, which a file does not hold: a server"
                " (regard explore) computes it by rows"
            )
        entries.append(entry)
    return entries


def _sample(attention: Attention) -> Tensor:
    """Queries at even distances."""
    heads, queries, keys = attention.shape
    count = min(queries, max(1, SAMPLED // (heads * keys)))
    return (torch.arange(count) * 2 + 1) * queries // (2 * count)


def _measures(
    attention: Attention, sequences: Items[Sequence], rows: Tensor | None
) -> dict[str, list[float]]:
    ids = [sequences[side].ids for side in (attention.rows, attention.columns)]
    known_ids = [
        torch.tensor([each], device=attention.look.device) for each in ids if each is not None
    ]
    tokens = TokenIds(*known_ids) if len(known_ids) == 2 else None
    values = measures(
        attention.look,
        attention.kind,
        attention.shape[0],
        attention.places,
        tokens,
        rows,
        attention.extent,
    )
    # The entropy of negative weights, which an edit may give, is not a number.
    return {name: each.tolist() for name, each in values.items() if each.isfinite().all()}


def _agreements(
    look: Look, keys: list[Span], queries: list[Span], links: Links
) -> dict[str, list[float]]:
    """Agreement with the gold links; where other words come after the linked ones, also one query later."""
    agreements = {"agreement": agreement(look, keys, queries, links)}
    if links.queries is not None:
        agreements["agreement, word read"] = agreement(look, keys, queries, links, later=1)
    return agreements


def picture(attention: Attention, head: int, exact: bool = True) -> Tensor:
    """The maxima of a head, or of the mean of the heads (-1), over at most 128 x 128 bins; NaN where no key may be
    read.

    One that is not `exact` takes one row of each bin where the head has many weights.
    """
    return _maxima(of_head(attention.look, head), exact).float()


def pictures(attention: Attention) -> list[Tensor] | None:
    """The pictures of all heads that are not exact, which one pass makes; None where it would take too long."""
    heads, _, keys = attention.shape
    if heads * PICTURE * keys > DEEP:
        return None
    return list(_headed(_maxima(attention.look, exact=False), attention).float())


def of_head(look: Look, head: int) -> Look:
    """The look at one head, or at the mean of the heads (-1)."""
    if len(look.shape) < 3:
        return look
    return look.mean_heads() if head < 0 else look[head]


def _maxima(look: Look, exact: bool = True) -> Tensor:
    queries, keys = look.shape[-2:]
    height, width = min(PICTURE, queries), min(PICTURE, keys)
    bins = bounds(range(height), queries / height), bounds(range(width), keys / width)
    rows = None if exact or queries * keys <= EXACT else bins[0].sum(0) // 2
    maxima = look.map(height, width, rows, reduce="max").cpu()
    return masked(look, maxima, *bins)


@torch.no_grad()
def _all_weights(attention: Attention) -> np.ndarray:
    """Every weight as float16, NaN where a key may not be read."""
    weights = _headed(attention.look.weights(), attention)
    readable = attention.look.readable()
    if readable is not None:
        weights = weights.masked_fill(~_headed(readable, attention), torch.nan)
    return np.asarray(weights.to(torch.float16).cpu().numpy(), "<f2")


def _picture(attention: Attention, buffers: _Buffers) -> dict[str, Any]:
    """Maxima over bins, as bytes: 254 is the largest weight of each head, 255 a bin without a key to read."""
    maxima = _headed(_maxima(attention.look), attention)
    height, width = maxima.shape[-2:]
    peaks = maxima.nan_to_num(0).flatten(1).amax(1)
    shares = maxima / peaks.clamp(min=1e-30)[:, None, None]
    scaled = (shares * 254).round().nan_to_num(255).to(torch.uint8)
    return {
        "buffer": buffers.add(scaled.numpy()),
        "height": height,
        "width": width,
        "peaks": peaks.tolist(),
    }


def _largest(attention: Attention, buffers: _Buffers, count: int) -> dict[str, Any]:
    """The keys that each row reads most, and their weights."""
    weights, keys = (_headed(each, attention).cpu() for each in attention.look.top(count))
    return {
        "keys": buffers.add(np.asarray(keys.numpy(), "<i4")),
        "weights": buffers.add(np.asarray(weights.numpy(), "<f2")),
        "count": count,
    }


def _headed(numbers: Float[Tensor, "*heads rows columns"], attention: Attention) -> Tensor:
    """The numbers with exactly one axis of heads."""
    return numbers.reshape(attention.shape[0], *numbers.shape[-2:])
