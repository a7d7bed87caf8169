"""Entries in RAM, in spans that are read as a whole: the lists of near states, or the stored sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int, Int16
from numpy.typing import NDArray
from torch import Tensor

from regard.loops.threads import run_shares
from regard.translation.datastore.space import COMPONENTS, FINE

_LEAST = 12  # queries for which a second thread pays

Queries = Int16[Tensor, "queries components"]  # in fine steps (see `Space.queries`)
Places = Int[Tensor, "queries few"]


@dataclass(frozen=True)
class Table:
    """Codes with their next tokens.

    Attributes:
        codes: of the states.
        tokens: the next token of each.
        sentences: the number of the sentence pair of each.
        starts: where each span begins, and where the last one ends.
    """

    codes: NDArray[np.int8]
    tokens: Int[Tensor, " entries"]
    sentences: Int[Tensor, " entries"]
    starts: NDArray[np.int64]

    @classmethod
    def empty(cls) -> Self:
        codes, none = np.zeros((0, COMPONENTS), np.int8), torch.zeros(0, dtype=torch.int64)
        return cls(codes, none, none, np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.tokens)

    def reordered(self, order: NDArray[np.int64], starts: NDArray[np.int64]) -> Table:
        """Entries in another order, with spans of their own."""
        return Table(self.codes.take(order, 0), self.tokens[order], self.sentences[order], starts)

    def entries(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries of spans, one span after the other, and how many each has; a span -1 has none."""
        begins = self.starts[numbers]
        counts = np.where(numbers < 0, 0, self.starts[numbers + 1] - begins)
        ends = np.cumsum(counts)
        return np.repeat(begins - ends + counts, counts) + np.arange(counts.sum()), counts


class Spans(NamedTuple):
    """The spans of a table that each query reads.

    Attributes:
        table: that has them.
        numbers: of the spans.
        factors: by which the squared distances to the entries of each are multiplied.
    """

    table: Table
    numbers: Int[Tensor, "queries spans"]
    factors: Float[Tensor, "queries spans"]

    @classmethod
    def plain(cls, table: Table, numbers: Int[Tensor, "queries spans"]) -> Self:
        """Spans whose distances stay as they are."""
        return cls(table, numbers, torch.ones(numbers.shape))

    @classmethod
    def nearest(
        cls,
        table: Table,
        closeness: Float[Tensor, "queries lists"],
        count: int,
        *,
        compiled: bool,
    ) -> Self:
        """The lists that are closest to each query (see `Space.closeness`)."""
        few = min(count, closeness.shape[1])
        if not compiled:
            return cls.plain(table, torch.topk(closeness, few, sorted=False).indices)
        from regard.translation.datastore import nearest_loops

        best, lists = _room(len(closeness), few)
        nearest_loops.greatest(closeness.numpy(), best.numpy(), lists.numpy())
        return cls.plain(table, lists)

    @classmethod
    def none(cls, queries: int) -> Self:
        return cls.plain(Table.empty(), torch.zeros(queries, 0, dtype=torch.int64))

    def gathered(self) -> Spans:
        """The same entries in a table that has no others, so that the caches hold those of a query.

        Numbers may be -1 here, for none.
        """
        order, counts = self.table.entries(self.numbers.flatten().numpy())
        table = self.table.reordered(order, np.concatenate([[0], np.cumsum(counts)]))
        return Spans(table, torch.arange(len(counts)).view(self.numbers.shape), self.factors)

    def select(self, rows: Int[Tensor, " kept"]) -> Spans:
        return Spans(self.table, self.numbers[rows], self.factors[rows])


class Reading(NamedTuple):
    """What queries read. The places of the entries of pairs come after those of the lists.

    Attributes:
        lists: spans of near states.
        pairs: spans of similar sentence pairs.
    """

    lists: Spans
    pairs: Spans

    def nearest(
        self, queries: Queries, count: int, *, compiled: bool
    ) -> tuple[Float[Tensor, "queries few"], Places]:
        """The squared distances, in units of codes, and the places of the nearest entries within spans.

        Where a query's spans hold fewer entries, inf and -1.
        """
        if not compiled:
            return self._nearest_plain(queries, count)
        from regard.translation.datastore import nearest_loops

        scores, places = _room(len(queries), count)
        self._run(nearest_loops.nearest, (), queries, scores, places)
        return scores.neg_(), places

    def mix(
        self,
        logits: Float[Tensor, "queries vocabulary"],
        queries: Queries,
        count: int,
        settings: tuple[float, float, float],
    ) -> None:
        """Mix the tokens of the nearest entries in place into logits, by temperature, reach and weight."""
        from regard.translation.datastore import nearest_loops

        tokens = tuple(spans.table.tokens.numpy() for spans in self)
        constants = tokens, tuple(map(np.float32, settings))
        self._run(nearest_loops.mix, constants, queries, *_room(len(queries), count), logits)

    def tokens(self, places: Places) -> Places:
        """The tokens at these places; -1 at the place -1."""
        return self._column(places, *(spans.table.tokens for spans in self))

    def sentences(self, places: Places) -> Places:
        """The sentence pairs of the entries at these places; -1 at the place -1."""
        return self._column(places, *(spans.table.sentences for spans in self))

    @staticmethod
    def _column(places: Places, of_lists: Tensor, of_pairs: Tensor) -> Places:
        column, offset = torch.full_like(places, -1), len(of_lists)
        lists, pairs = (places >= 0) & (places < offset), places >= offset
        column[lists], column[pairs] = of_lists[places[lists]], of_pairs[places[pairs] - offset]
        return column

    def _run(self, loop: Any, constants: tuple[Any, ...], *tensors: Tensor) -> None:
        """Call a loop for shares of the queries; it writes the tensors after the first."""
        arrays = [tensor.numpy() for tensor in tensors]
        rows = [(numbers.numpy(), factors.numpy()) for _, numbers, factors in self]

        def compute(begin: int, end: int) -> None:
            share = slice(begin, end)
            readings = tuple(
                (spans.table.starts, spans.table.codes, numbers[share], factors[share])
                for spans, (numbers, factors) in zip(self, rows, strict=True)
            )
            loop(readings, *constants, *(array[share] for array in arrays))

        run_shares(len(tensors[0]), compute, least=_LEAST)

    def _nearest_plain(self, queries: Queries, count: int) -> tuple[Tensor, Tensor]:
        distances, places = _room(len(queries), count)
        distances.fill_(torch.inf)
        places.fill_(-1)
        for row, query in enumerate(queries):
            squares, entries, offset = [], [], 0
            for table, numbers, factors in self:
                order, counts = table.entries(numbers[row].numpy())
                codes = torch.from_numpy(table.codes[order]).float()
                scale = factors[row].repeat_interleave(torch.from_numpy(counts))
                squares.append((query / FINE - codes).square().sum(1) * scale)
                entries.append(torch.from_numpy(order + offset))
                offset += len(table)
            best = torch.cat(squares).argsort(stable=True)[:count]
            distances[row, : len(best)] = torch.cat(squares)[best]
            places[row, : len(best)] = torch.cat(entries)[best]
        return distances, places


def _room(queries: int, count: int) -> tuple[Tensor, Tensor]:
    """For the distances or scores, and the places, of the nearest entries or lists."""
    return torch.empty(queries, count), torch.empty(queries, count, dtype=torch.int64)
