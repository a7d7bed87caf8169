"""A table of heads: entropy, distance and the positions that each head reads."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from math import nan, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.looks import Look
from regard.watching.captured import CapturedCall
from regard.watching.errors import WatchError
from regard.watching.extents import Extent, extent
from regard.watching.measures import TokenIds, measures, own_places

MOST = 200  # rows of a table in a notebook
LEAST_SHARE = 0.4  # of the weight of a head that has a role
# Of the name of an attention and its look: a number for each head.
Measure = Callable[[str, Look], Any]
POSITIONS = re.compile(r"(^|[._])(pos(?!t)|wpe)|positions?$")


class EmbeddingCall(NamedTuple):
    """A call of an embedding: its path, its number of rows, and the token ids."""

    path: str
    vocabulary: int
    tokens: Tensor


class Subject(NamedTuple):
    """A seen attention: its names, its last look, and the numbers of its heads."""

    name: str
    kind: str
    path: str
    look: Look
    call: CapturedCall
    numbers: Sequence[int]
    embedded: list[EmbeddingCall]  # those of its tokens

    @property
    def heads(self) -> int:
        return len(self.numbers)

    @property
    def entries(self) -> int:
        """The number of batch entries."""
        return prod(self.look.shape[:-2]) // max(1, self.heads)


@dataclass(frozen=True)
class Head:
    """One head of one attention, with its `measures`; those of tokens are nan if the tokens are unknown.

    `writes` is `unembedding.written`, of language models and watches with values, and `measure` that of the function
    passed to `table`; nan elsewhere.
    """

    name: str
    kind: str
    head: int
    entropy: float
    distance: float
    sink: float
    diagonal: float
    previous: float
    copy: float = nan
    induction: float = nan
    prefix: float = nan
    writes: float = nan
    measure: float = nan

    @property
    def role(self) -> str:
        """The names of heads that do as this one does.

        By what it reads, the largest of four measures, if it is 0.4 or more; and "copy by output", if the output
        raises the token that is read for 0.4 or more of the keys.
        """
        shares = {
            "previous token": self.previous,
            "induction": self.prefix,
            "duplicate token": self.copy,
            "sink": self.sink,
        }
        role = max(shares, key=lambda name: -1.0 if shares[name] != shares[name] else shares[name])
        roles = [role] * (shares[role] >= LEAST_SHARE) + ["copy by output"] * (
            self.writes >= LEAST_SHARE
        )
        return ", ".join(roles)


OPTIONAL = ("writes", "measure")  # columns that are shown where they have numbers
COLUMNS = [field.name for field in fields(Head) if field.name not in OPTIONAL]


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
            f"{name:{width}} {kind:6} {number:>4} "
            + " ".join([*(f"{cell:>9}" for cell in cells), role]).rstrip()
            for name, kind, number, *cells, role in [self._header, *self._rows()]
        )

    def _repr_html_(self) -> str:
        return html(self._header, self._rows())

    @property
    def _columns(self) -> list[str]:
        optional = [
            name
            for name in OPTIONAL
            if any(getattr(head, name) == getattr(head, name) for head in self.heads)
        ]
        return [*COLUMNS, *optional]

    @property
    def _header(self) -> list[str]:
        return [*self._columns, "role"]

    def _rows(self) -> list[list[str]]:
        columns = self._columns[3:]
        return [
            [head.name, head.kind, str(head.head)]
            + [
                "-" if (number := getattr(head, name)) != number else f"{number:.3f}"
                for name in columns
            ]
            + [head.role]
            for head in self.heads
        ]


def table(
    subjects: Iterable[Subject],
    tokens: Tensor | None = None,
    measure: Measure | None = None,
    writes_of: Callable[[Subject, TokenIds], Tensor | None] | None = None,
) -> HeadTable:
    """The table of heads of these attentions; arguments as for `Seen.table`, and the measure of what heads write."""
    rows = []
    for subject in subjects:
        read = tokens_read(subject, tokens)
        measured = measures(
            subject.look,
            subject.kind,
            subject.heads,
            places(subject),
            read,
            extent=extent_of(subject),
        )
        writes = None if writes_of is None or read is None else writes_of(subject, read)
        if writes is not None:
            measured["writes"] = writes
        if measure is not None:
            measured["measure"] = _of_heads(measure(subject.name, subject.look), subject)
        for place, number in enumerate(subject.numbers):
            of_head = {name: values[place].item() for name, values in measured.items()}
            rows.append(Head(subject.name, subject.kind, number, **of_head))
    return HeadTable(tuple(rows))


def _of_heads(numbers: object, subject: Subject) -> Tensor:
    """The numbers of a measure, one a head."""
    measured = numbers if isinstance(numbers, Tensor) else torch.as_tensor(numbers)
    if measured.shape != (subject.heads,):
        raise WatchError(
            f"measure returned {list(measured.shape)} for {subject.name}: return {subject.heads} numbers, one a head"
        )
    return measured


def places(subject: Subject) -> Tensor:
    """The position of each query among the keys; proportional in cross attention."""
    queries, keys = subject.look.shape[-2:]
    if subject.kind != "cross" and (subject.call.rows is not None or queries <= keys):
        return subject.call.places()
    if subject.call.rows is not None:
        return subject.call.rows
    return own_places(subject.kind, queries, keys)


def extent_of(subject: Subject) -> Extent | None:
    """The queries and keys that are no padding; None for all."""
    return extent(subject.call, subject.heads, places(subject), subject.kind == "cross")


def of_tower(embedded: list[EmbeddingCall], path: str, paths: Iterable[str]) -> list[EmbeddingCall]:
    """The embeddings of a self-attention, of all attentions with these paths.

    An embedding beside which other attentions are, and not this one, belongs to another tower: the tokens of a text
    are none of an image.

    >>> calls = [EmbeddingCall("text.embed", 10, torch.zeros(1, 2))]
    >>> of_tower(calls, "image.0.attention", ["image.0.attention", "text.0.attention"])
    []
    """
    return [call for call in embedded if not _is_apart(call.path, path, paths)]


def _is_apart(embedding: str, path: str, paths: Iterable[str]) -> bool:
    steps, attention = embedding.split(".")[:-1], path.split(".")
    shared = next(
        (i for i, pair in enumerate(zip(steps, attention, strict=False)) if len({*pair}) > 1), None
    )
    if shared is None:
        return False
    branch = ".".join(steps[: shared + 1]) + "."
    return any(each.startswith(branch) for each in paths)


def tokens_read(subject: Subject, tokens: Tensor | None = None) -> TokenIds | None:
    """The tokens of the queries and of the keys; None if no embedding had as many."""
    embedded = subject.embedded
    look, crosses = subject.look, subject.kind == "cross"
    queries, keys = look.shape[-2:]
    late, order = "decoder" in subject.path and not crosses, subject.call.order
    if tokens is not None:
        key: Tensor | None = tokens
    elif order is not None and not crosses:
        key = generated(embedded, order, keys - len(order))
    else:
        key = tokens_of(embedded, keys, late)
    query: Tensor | None = None
    if crosses and tokens is None:
        query = _of_queries(embedded, queries, order, subject.call.rows)
        key = key if key is None else _for_beams(key, subject.call.key)
    elif key is not None and key.shape[-1] == keys:
        query = key[:, places(subject).to(key.device)]
    if query is None or key is None or {len(query), len(key)} != {subject.entries}:
        return None
    return TokenIds(query.to(look.device), key.to(look.device))


def _for_beams(tokens: Tensor, keys: Tensor) -> Tensor:
    """The source of each beam, where the keys show as many beams for each source, one after another."""
    beams, remainder = divmod(len(keys), len(tokens))
    if remainder or beams < 2:
        return tokens
    groups = keys.unflatten(0, (len(tokens), beams))
    alike = torch.equal(groups, groups[:, :1].expand_as(groups))
    return tokens.repeat_interleave(beams, 0) if alike else tokens


def _of_queries(
    embedded: list[EmbeddingCall], queries: int, order: Tensor | None, rows: Tensor | None
) -> Tensor | None:
    """The tokens of the queries of a cross attention."""
    if order is None:
        return tokens_of(embedded, queries, True)
    tokens = generated(embedded, order, 0)
    return tokens if tokens is None or rows is None else tokens[:, rows.to(tokens.device)]


def generated(tokens: list[EmbeddingCall], order: Tensor, prompt_length: int) -> Tensor | None:
    """The tokens of the last steps, each of the entry that had it, and `prompt_length` tokens of a prompt.

    Args:
        tokens: the calls of embeddings.
        order: (steps, entries), the entry of each step that became each entry of the last.
        prompt_length: the length of the prompt, 0 to leave it out.
    """
    steps, entries = order.shape
    joined_tokens: Tensor | None = None
    for run in _words(tokens):
        prompt, steps_run = run[: len(run) - steps][-1:] if prompt_length else [], run[-steps:]
        shapes = [*[(entries, prompt_length)] * bool(prompt_length), *[(entries, 1)] * steps]
        if [tuple(each.shape) for each in (*prompt, *steps_run)] == shapes:
            orders = [*[order[0]] * bool(prompt_length), *order]
            pairs = zip((*prompt, *steps_run), orders, strict=True)
            joined_tokens = torch.cat([each[entry.to(each.device)] for each, entry in pairs], -1)
    unmoved = torch.arange(entries, device=order.device)
    # The model embedded all tokens before.
    if joined_tokens is None and bool((order == unmoved).all()):
        return tokens_of(tokens, prompt_length + steps, True)
    return joined_tokens


def _words(tokens: list[EmbeddingCall]) -> Iterator[list[Tensor]]:
    """The calls of each embedding of words: those with the largest vocabulary."""
    tokens = [each for each in tokens if not POSITIONS.search(each.path)]
    largest = max((each.vocabulary for each in tokens), default=0)
    for path in dict.fromkeys(each.path for each in tokens if each.vocabulary == largest):
        yield [each.tokens for each in tokens if each.path == path]


def tokens_of(tokens: list[EmbeddingCall], length: int, from_end: bool) -> Tensor | None:
    """The tokens of a sequence of this length: of one call, or of a prompt and the tokens after it.

    `from_end` chooses the last such sequence instead of the first.
    """
    sequences: list[Tensor] = []
    for calls in _words(tokens):
        run: list[Tensor] = []
        for piece in calls:
            follows = run and piece.shape[-1] == 1 and piece.shape[:-1] == run[0].shape[:-1]
            run = [*run, piece] if follows else [piece]
            if sum(part.shape[-1] for part in run) == length:
                sequences.append(torch.cat(run, -1))
    return None if not sequences else sequences[-1 if from_end else 0]


def html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table. Rows after the 200th are only counted."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = [line("th", header), *(line("td", row) for row in rows[:MOST])]
    hidden = len(rows) - MOST
    more = f"<div>{hidden} more rows: print() shows all</div>" if hidden > 0 else ""
    return f"<table>{''.join(lines)}</table>{more}"
