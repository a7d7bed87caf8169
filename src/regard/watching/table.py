"""A table of heads: entropy, distance and the positions that each head reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from html import escape
from math import nan, prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.looks import Look
from regard.watching.captured import CapturedCall
from regard.watching.tokens import EmbeddingCall, tokens_of

MOST = 200  # rows of a table in a notebook
BLOCK = 1 << 22  # weights computed at a time


class Subject(NamedTuple):
    """A seen attention: its names, its last look, and the numbers of its heads."""

    name: str
    kind: str
    path: str
    look: Look
    call: CapturedCall
    numbers: Sequence[int]

    @property
    def heads(self) -> int:
        return len(self.numbers)

    @property
    def entries(self) -> int:
        """The number of batch entries."""
        return prod(self.look.shape[:-2]) // max(1, self.heads)


@dataclass(frozen=True)
class Head:
    """One head of one attention. Each number is a mean over the queries that read any key.

    Attributes:
        entropy: in nats.
        distance: between the positions of a query and of the keys it reads.
        sink: the weight of the first key (Xiao et al. 2024, arXiv 2309.17453).
        diagonal: the weight of the key at the query's position, or at the proportional position in
            cross attention.
        previous: the weight of the key before that.
        copy: the weight of other keys with the query's token; nan if the tokens are unknown.
        induction: the weight of the keys after those (Olsson et al. 2022, arXiv 2209.11895).
    """

    name: str
    kind: str
    head: int
    entropy: float
    distance: float
    sink: float
    diagonal: float
    previous: float
    copy: float
    induction: float


COLUMNS = [field.name for field in fields(Head)]


@dataclass(frozen=True)
class HeadTable:
    """The heads of the seen attentions, in the order of their computation; `str` gives a table."""

    heads: tuple[Head, ...]

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    def __str__(self) -> str:
        width = max([len("name"), *(len(head.name) for head in self.heads)])
        return "\n".join(
            f"{name:{width}} {kind:6} {number:>4} " + " ".join(f"{cell:>9}" for cell in cells)
            for name, kind, number, *cells in [COLUMNS, *self._rows()]
        )

    def _repr_html_(self) -> str:
        return html(COLUMNS, self._rows())

    def _rows(self) -> list[list[str]]:
        return [
            [head.name, head.kind, str(head.head)]
            + ["-" if number != number else f"{number:.3f}" for number in astuple(head)[3:]]
            for head in self.heads
        ]


@torch.no_grad()
def table(
    subjects: Iterable[Subject],
    embedded: list[EmbeddingCall],
    tokens: Tensor | None = None,
) -> HeadTable:
    """The table of heads of these attentions; arguments as for `Seen.table`."""
    rows = []
    for subject in subjects:
        measured = _measured(subject, tokens_read(subject, embedded, tokens))
        for number, row in zip(subject.numbers, measured.T.tolist(), strict=True):
            rows.append(Head(subject.name, subject.kind, number, *row))
    return HeadTable(tuple(rows))


def _measured(subject: Subject, tokens: tuple[Tensor, Tensor] | None) -> Tensor:
    """The numbers of `Head`, (7, heads). The weights are computed in blocks of rows."""
    look, heads, own = subject.look, subject.heads, places(subject)
    entries, (queries, keys) = subject.entries, look.shape[-2:]
    sums = torch.zeros(6, heads, dtype=torch.float64, device=look.device)
    counted = torch.zeros(heads, dtype=torch.float64, device=look.device)
    columns = torch.arange(keys, device=look.device)
    height = max(1, BLOCK // max(1, prod(look.shape[:-2]) * keys))
    for start in range(0, queries if keys else 0, height):
        rows = range(start, min(start + height, queries))
        weights = look.weights(rows=rows).reshape(entries, heads, len(rows), keys)
        place = own[rows.start : rows.stop].to(look.device)
        counted += (weights.sum(-1) > 0.5).sum((0, 2))
        away = (columns - place[:, None]).abs().to(weights)
        parts = [
            (weights * away).sum((0, 2, 3)),
            weights[..., 0].sum((0, 2)),
            _at(weights, place),
            _at(weights, place - 1),
            *_copied(weights, place, rows, tokens),
        ]
        sums += torch.stack(parts)
    entropy = look.entropy().reshape(entries, heads, queries).sum((0, 2)).to(sums)
    return torch.cat([entropy[None], sums]) / counted.clamp(min=1)


def _at(weights: Tensor, place: Tensor) -> Tensor:
    """The weights of one key for each query, summed by head; 0 for positions outside."""
    at = place[:, None] == torch.arange(weights.shape[-1], device=place.device)
    return (weights * at).sum((0, 2, 3))


def _copied(
    weights: Tensor, place: Tensor, rows: range, tokens: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The weights of other keys with the query's token, and of the keys after those."""
    if tokens is None:
        nothing = weights.new_full((weights.shape[1],), nan)
        return nothing, nothing
    query, key = tokens
    same = query[:, rows.start : rows.stop, None] == key[:, None]
    if query.shape == key.shape:
        columns = torch.arange(key.shape[-1], device=key.device)
        same = same & (columns != place.to(key.device)[:, None])
    after = F.pad(same[..., :-1], (1, 0))
    copied, induced = ((weights * each[:, None]).sum((0, 2, 3)) for each in (same, after))
    return copied, induced


def places(subject: Subject) -> Tensor:
    """The position of each query among the keys; proportional in cross attention."""
    queries, keys = subject.look.shape[-2:]
    if subject.kind != "cross" and (subject.call.rows is not None or queries <= keys):
        return subject.call.places()
    if subject.call.rows is not None:
        return subject.call.rows
    return torch.arange(queries) * keys // max(1, queries)


def tokens_read(
    subject: Subject, embedded: list[EmbeddingCall], given: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """The tokens of the queries and of the keys; None if no embedding had as many."""
    look, crosses = subject.look, subject.kind == "cross"
    queries, keys = look.shape[-2:]
    late = "decoder" in subject.path and not crosses
    key = tokens_of(embedded, keys, late) if given is None else given
    query: Tensor | None = None
    if crosses:
        query = tokens_of(embedded, queries, True) if given is None else None
    elif key is not None and key.shape[-1] == keys:
        query = key[:, places(subject).to(key.device)]
    if query is None or key is None or {len(query), len(key)} != {subject.entries}:
        return None
    return query.to(look.device), key.to(look.device)


def html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table. Rows after the 200th are only counted."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = [line("th", header), *(line("td", row) for row in rows[:MOST])]
    hidden = len(rows) - MOST
    more = f"<div>{hidden} more rows: print() shows all</div>" if hidden > 0 else ""
    return f"<table>{''.join(lines)}</table>{more}"
