"""Entries that are read by similarity: the blend of their values, a look at the weights, the best few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from math import prod
from typing import Any, Self, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend, look
from regard.attention.kernels.choose import pinned
from regard.attention.kernels.ties import level_best
from regard.attention.looks import Look
from regard.attention.masks import as_mask
from regard.attention.masks.mask import check_boolean
from regard.attention.normalisers import NormaliserLike, Softmax, as_normaliser
from regard.attention.parts import Part
from regard.attention.products import widen
from regard.attention.ranking import top
from regard.attention.scores import Cosine, ScaledDot, ScoreLike, build
from regard.attention.scores.score import pairwise
from regard.attention.shapes import check_plane
from regard.loops.availability import followed, has_numbers
from regard.memory import one_pass
from regard.memory.bounded import BoundedReading, Linear, Source, read_bounded
from regard.memory.coded_entries import AT_ONCE
from regard.memory.entries import Entries
from regard.memory.found import EmptyMemoryError
from regard.memory.objects import floats, is_text, numbers, short, strings
from regard.memory.one_pass import Read, Span

Strings = str | Sequence[str]
EMPTY = "the memory is empty: write entries before looking one up"
ROOM = 1 << 24  # scores that a search by torch holds at a time
TOGETHER = 1 << 12  # queries that take one pass
LEAST = 1 << 22  # bytes of keys and values, times queries, that compiled loops read faster
SHARPNESS = 20.0  # weights of 0.99 for an exact key among hundreds of strings

Encoder = Callable[[list[str]], Any]
ReadAll = Callable[[Tensor, Any], tuple[Tensor, Tensor]]


class ReadableEntries(nn.Module):
    """Entries, with the score that compares queries with their keys and the normaliser that makes weights.

    Args:
        entries: Keys and values.
        score: How queries are compared with keys, or a name.
        normaliser: Scores to weights, or a name.
        encoder: Strings to vectors.
    """

    def __init__(
        self,
        entries: Entries,
        score: ScoreLike | None,
        normaliser: NormaliserLike | None,
        encoder: Encoder | None,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.__dict__["entries"] = entries  # found in a tenth of the time of a module's part
        if score is None and encoder is not None:
            score = Cosine(SHARPNESS)
        self.score = None if score is None else build(score, entries.d_key, entries.d_key)
        self.normaliser = normaliser
        self.encoder = encoder

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a score or normaliser may be given by its name at any time."""
        if isinstance(value, str) and name == "score":
            value = build(value, self.entries.d_key, self.entries.d_key)
        elif isinstance(value, str) and name == "normaliser":
            value = as_normaliser(value)
        elif name == "encoder" and value is not None and not callable(value):
            raise TypeError(
                f"encoder is {value!r}: pass a function of a list of strings, such as CharacterNgrams()"
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.entries)

    def __copy__(self) -> Self:
        """A memory with the same tensors that is written to by itself."""
        twin = type(self).__new__(type(self))
        entries = copy(self.entries)
        modules = self._modules | {"entries": entries}
        twin.__dict__.update(self.__dict__, entries=entries, _modules=modules)
        return twin

    @property
    def keys(self) -> Float[Tensor, "*batch entries d_key"] | None:
        """The keys, or None before the first write."""
        return self.entries.key

    @property
    def values(self) -> Float[Tensor, "*batch entries d_value"] | None:
        """The values, or None before the first write."""
        return self.entries.values

    @overload
    def read(
        self, queries: Any, *, mask: Any = None, group: Any = None, tolerance: None = None
    ) -> Tensor: ...

    @overload
    def read(
        self, queries: Any, *, mask: Any = None, group: Any = None, tolerance: float
    ) -> BoundedReading: ...

    def read(
        self,
        queries: Float[Tensor, "*batch queries d_key"] | Strings,
        *,
        mask: Any = None,
        group: Any = None,
        tolerance: float | None = None,
    ) -> Float[Tensor, "*batch queries d_value"] | BoundedReading:
        """The blended values; zero where there is nothing to read, as in an empty memory.

        Args:
            queries: Vectors, or strings for the encoder. They are read in the precision of the keys, and the answer has
                theirs.
            mask: Which entries may be read, as for `regard.attend`.
            group: Processes that share out the entries, as for `regard.attend`: each reads with the same
                queries, from a memory that holds its own entries; one without any was made with
                ``d_key`` and ``d_value``.
            tolerance: The weight that may be left out, from 0 up to below 1. The answer is then a
                `BoundedReading`, without gradients: the entries that matter are found by codes of 8 bits,
                which are kept. With a group each rank bounds what it leaves out. Where no bound is known
                (other scores than dot products and their soft caps, other normalisers than softmax), or
                reading everything is faster, all is read.
        """
        query = self._vectors(queries)
        if tolerance is not None:
            return self._read_within(query, mask, group, tolerance)
        return self._read(query, mask, group)

    def _read(self, query: Tensor, mask: Any, group: Any = None) -> Tensor:
        """The blend of all values."""
        keys, values = self.keys, self.values
        if group is not None:
            width = self.entries.d_key or query.shape[-1]
            if keys is None or values is None:  # nothing here, though perhaps on other ranks
                keys = query.new_empty(0, width)
                values = query.new_empty(0, self.entries.d_value or width)
            options = {"score": self.score, "normaliser": self.normaliser, "group": group}
        elif values is None or not len(self):
            width = self.entries.d_value or self.entries.d_key or query.shape[-1]
            return query.new_zeros((*query.shape[:-1], width))
        else:
            keys, options = self._prepared()
            if (part := self._part(query.to(keys.dtype), mask)) is not None:
                return part.reading().to(query.dtype)
        reading = attend(query.to(keys.dtype), keys, values, mask=mask, **options)
        return reading.to(query.dtype)

    forward = read

    def _part(self, query: Tensor, mask: Any) -> Part | None:
        """The part of all entries in the reading of few queries by compiled loops; None where `attend` reads them."""
        values = self.values
        if values is None or not has_numbers(values) or values.dtype == torch.float64 or pinned():
            return None
        if not (mask is None or isinstance(mask, Tensor)):
            return None
        part = self._part_of_few(query, self._readable(query, mask))
        is_sound = part is not None and bool(part.blend.isfinite().all())
        return part if is_sound else None  # `attend` keeps masked infinities out of a reading

    def _part_of_few(self, query: Tensor, readable: Tensor | None) -> Part | None:
        """The part of all entries by compiled loops; None for many queries, or batch axes of these or of the mask."""
        is_plane = query.dim() == 2 and (readable is None or readable.dim() < 3)
        if not is_plane or len(query) > one_pass.FEW or (form := self._form(query)) is None:
            return None
        width: Any = self.entries.d_value
        return one_pass.part_of(form, self._spans(), self._readers(query), width, readable)

    def _spans(self) -> list[Span]:
        """The rows of each block."""
        count = len(self)
        return [(start, min(start + AT_ONCE, count)) for start in range(0, count, AT_ONCE)]

    def _readers(self, query: Tensor) -> Callable[[], Read]:
        """Makes for each thread what reads the keys and values of a block as compiled loops take them."""
        from regard.memory.row_loops import rows_of  # with the compiler

        keys, values = self._prepared()[0].detach(), self.values
        assert values is not None
        columns = keys, values.detach()

        def read(span: Span) -> tuple[np.ndarray, np.ndarray]:
            key, value = (rows_of(column[slice(*span)]) for column in columns)
            return key, value

        return lambda: read

    @torch.no_grad()
    def _read_within(
        self, query: Tensor, mask: Any, group: Any, tolerance: float
    ) -> BoundedReading:
        """The blend of the values that matter."""
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}: pass a weight from 0 to below 1")
        query = with_batch_axes(query, mask)
        if group is None:
            return self._bounded(query, mask, tolerance, self._read_all)[0]
        from regard.memory.over_ranks import read_within  # with torch.distributed

        def compute(mask: Any) -> tuple[BoundedReading, Tensor]:
            return self._bounded(query, mask, tolerance, self._blend)

        return read_within(group, query, mask, self.entries, self.normaliser, compute)

    def _bounded(
        self, query: Tensor, mask: Any, tolerance: float, read_all: ReadAll
    ) -> tuple[BoundedReading, Tensor]:
        """The blend of the values that matter, and the logarithm of their sum of exponentials."""
        normaliser, source = self._normaliser, self._source()
        if source is None or type(normaliser) is not Softmax:
            reading, logs = read_all(query, mask)
            nothing = reading.new_zeros(reading.shape[:-1])
            return BoundedReading(reading, nothing, nothing, 1.0), logs
        rows = query.flatten(0, -2)
        readable = self._readable(query, mask)
        if readable is not None:
            readable = readable.expand(*query.shape[:-1], source.count).flatten(0, -2)

        def read_rows(places: list[int]) -> tuple[Tensor, Tensor]:
            return read_all(rows[places], None if readable is None else readable[places])

        score = self.score or ScaledDot()
        answer, logs = read_bounded(
            rows, score, normaliser.temperature, source, tolerance, readable, read_rows
        )
        reading, bound, error = (
            each.unflatten(0, query.shape[:-1])
            for each in (answer.reading, answer.bound, answer.error)
        )
        return BoundedReading(reading, bound, error, answer.share), logs

    def _read_all(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        """The blend of all values, and NaN for the sum of exponentials: a reading of all entries leaves nothing out."""
        reading = self._read(query, mask)
        return reading, reading.new_full(reading.shape[:-1], torch.nan)

    def _blend(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        """The blend of all values, and the logarithm of the sum of exponentials."""
        return self._read(query, mask), self.look(query, mask=mask).log_normaliser()

    def _source(self) -> Source | None:
        """The entries with codes, for a bounded reading; None where there are none."""
        return self.entries.coded() if len(self) else None

    def _readable(self, query: Tensor, mask: Any) -> Tensor | None:
        """The mask as booleans that broadcast to (*batch, queries, entries)."""
        rows = self.entries.rows
        if isinstance(mask, Tensor):
            check_boolean(mask)
            check_plane("mask", mask.shape, query.shape[-2], rows)
        if mask is None or isinstance(mask, Tensor):
            return mask
        return as_mask(mask).dense(query.shape[:-2], query.shape[-2], rows, query.device)

    def look(
        self, queries: Float[Tensor, "*batch queries d_key"] | Strings, *, mask: Any = None
    ) -> Look:
        """A look at the weights of a reading."""
        keys, options = self._prepared()
        answer: Look = look(self._vectors(queries).to(keys.dtype), keys, mask=mask, **options)
        return answer

    def _best_entries(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The `k` largest weights of each query (all, where there are fewer), and where they stand."""
        if not len(self):
            weights = queries.new_zeros((*queries.shape[:-1], 0))
            return weights, weights.long()
        batch = max(1, prod(queries.shape[:-2]))
        return _in_portions(
            lambda rows: self._search(rows, min(k, len(self))), queries, TOGETHER // batch
        )

    def _search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The largest weights of each query, and where they stand: by compiled loops, or by torch."""
        if k <= one_pass.MOST and (form := self._form(queries)) is not None:
            answer = one_pass.best_of(form, self._key_blocks(form), k, self._live())
            if answer is not None:
                weights, positions = (rows.unflatten(0, queries.shape[:-1]) for rows in answer)
                return weights, positions
        scores = self._scored_at_once() * prod(queries.shape[:-2])
        return _in_portions(
            lambda rows: self._search_by_torch(rows, k), queries, ROOM // max(1, scores)
        )

    def _form(self, query: Tensor) -> Linear | None:
        """The scores as compiled loops read them; None where they do not, or the memory is small."""
        rows = prod(query.shape[:-1])
        if self.entries.nbytes * rows < LEAST or self._is_traced(query):
            return None
        keys, options = self._prepared()
        return one_pass.form_of(options["score"], query, keys, self._normaliser)

    def _is_traced(self, query: Tensor) -> bool:
        """Whether a reading of this query has gradients, of which those forwards need no grad mode."""
        if followed():
            return True
        if not torch.is_grad_enabled():
            return False
        return any(each.requires_grad for each in (query, *self.buffers(), *self.parameters()))

    def _key_blocks(self, form: Linear) -> Iterator[tuple[Span, np.ndarray]]:
        """The rows of each block and its keys, as compiled loops read them."""
        from regard.memory.row_loops import rows_of  # with the compiler

        keys = self._prepared()[0].detach()
        return ((span, rows_of(keys[slice(*span)])) for span in self._spans())

    @property
    def _normaliser(self) -> Any:
        return as_normaliser(self.normaliser or "softmax")

    def _live(self) -> Tensor | None:
        """Which positions hold an entry; None for all."""
        return None

    def _scored_at_once(self) -> int:
        """The entries whose scores a search by torch holds together."""
        return len(self)

    def _search_by_torch(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        keys, options = self._prepared()
        wide = widen(keys)
        queries = queries.to(wide.dtype)
        scores = widen(options["score"](queries, wide))
        if pairwise(self.score or ScaledDot()) is not None:
            scores = level_best(scores, queries, keys)
        return self._best(scores, k)

    def _best(
        self, scores: Tensor, k: int, readable: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The largest weights of each row of scores, and where they stand."""
        normaliser = self._normaliser
        weights = normaliser(scores, readable)
        if readable is not None:
            scores = scores.masked_fill(~readable, -torch.inf)
        if normaliser.is_ours:  # a better score never weighs less
            positions = top(scores.detach(), k)[1]
        else:
            by_score = scores.argsort(dim=-1, descending=True, stable=True)
            by_weight = weights.gather(-1, by_score).argsort(dim=-1, descending=True, stable=True)
            positions = by_score.gather(-1, by_weight)[..., :k]
        return weights.gather(-1, positions), positions

    def _prepared(self) -> tuple[Tensor, dict[str, Any]]:
        """The keys after the score's work on them, and the score and normaliser that read them."""
        if self.keys is None or not len(self):
            raise EmptyMemoryError(EMPTY)
        score, keys = self.entries.prepared(self.score or ScaledDot())
        return keys, {"score": score, "normaliser": self.normaliser}

    def _vectors(self, queries: Any) -> Tensor:
        vectors = queries
        if not isinstance(queries, Tensor):
            if is_text(queries):
                return self._encoded(strings(queries))
            vectors = numbers(queries)
        count = None if vectors is None else vectors.dim()
        if not count:
            raise TypeError(f"got {short(queries)}: pass vectors, a string or a list of strings")
        if vectors is not queries and self.entries.like is not None:
            vectors = vectors.to(self.entries.like)
        vectors = floats(vectors)
        return vectors[None] if count == 1 else vectors  # a third of the time of unsqueeze

    def _encoded(self, text: list[str]) -> Tensor:
        if self.encoder is None:
            raise ValueError("got strings, and this memory has no encoder: pass encoder=")
        result = self.encoder(text)
        vectors = numbers(result)
        if vectors is None or vectors.dim() != 2 or vectors.shape[0] != len(text):
            raise TypeError(
                f"the encoder made {short(result)} of {len(text)} strings: it has to make a vector of each"
            )
        like = self.entries.like
        return floats(vectors if like is None else vectors.to(like))


def with_batch_axes(query: Tensor, mask: Any) -> Tensor:
    """The query with the batch axes that its reading has under this mask."""
    if not isinstance(mask, Tensor):
        return query
    batch = torch.broadcast_shapes(query.shape[:-2], mask.shape[:-2])
    return query.expand(*batch, *query.shape[-2:])


def _in_portions(
    search: Callable[[Tensor], tuple[Tensor, Tensor]], queries: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """The answers of a search to so many queries at a time."""
    answers = [search(rows) for rows in queries.split(max(1, count), dim=-2)]
    weights, positions = (torch.cat(each, dim=-2) for each in zip(*answers, strict=True))
    return weights, positions
