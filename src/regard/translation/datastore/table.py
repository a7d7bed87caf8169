"""Entries in RAM, in spans that are read as a whole: the lists of near states, or the stored sentences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.loops.threads import run_shares

_LEAST = 12  # queries for which a second thread pays

Queries = Float[Tensor, "queries components"]


@dataclass(frozen=True)
class Spans:
    """The spans that each query reads.

    Attributes:
        numbers: in a table; -1 for none.
        factors: by which the squared distances to the entries of each are multiplied.
    """

    numbers: Int[Tensor, "queries spans"]
    factors: Float[Tensor, "queries spans"]

    @classmethod
    def plain(cls, numbers: Int[Tensor, "queries spans"]) -> Spans:
        """Spans whose distances stay as they are."""
        return cls(numbers, torch.ones(numbers.shape))

    def select(self, rows: Int[Tensor, " kept"]) -> Spans:
        return Spans(self.numbers[rows], self.factors[rows])

    def beside(self, spans: Spans) -> Spans:
        """These, and others for the same queries."""
        numbers = torch.cat([self.numbers, spans.numbers], 1)
        return Spans(numbers, torch.cat([self.factors, spans.factors], 1))


@dataclass(frozen=True)
class Table:
    """Codes with their next tokens.

    Attributes:
        codes: of the states, one after the other.
        tokens: the next token of each.
        sentences: the number of the sentence pair of each.
        starts: where each span begins, and where the last one ends.
    """

    codes: NDArray[np.int8]
    tokens: Int[Tensor, " entries"]
    sentences: Int[Tensor, " entries"]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)

    def reordered(self, order: NDArray[np.int64], starts: NDArray[np.int64]) -> Table:
        """The same entries in another order, with spans of their own."""
        return Table(self.codes[order], self.tokens[order], self.sentences[order], starts)

    def with_later(self, later: Table) -> Table:
        """The spans of this table, then those of another one."""
        return Table(
            np.concatenate([self.codes, later.codes]),
            torch.cat([self.tokens, later.tokens]),
            torch.cat([self.sentences, later.sentences]),
            np.concatenate([self.starts, later.starts[1:] + len(self.tokens)]),
        )

    def nearest(
        self, queries: Queries, spans: Spans, count: int, *, compiled: bool
    ) -> tuple[Float[Tensor, "queries few"], Int[Tensor, "queries few"]]:
        """The squared distances, in units of codes, and the places of the nearest entries within spans.

        Where a query's spans hold fewer entries, inf and -1.
        """
        if not compiled:
            return self._nearest_plain(queries, spans, count)
        from regard.translation.datastore import nearest_loops

        distances = torch.empty(len(queries), count)
        places = torch.empty(len(queries), count, dtype=torch.int64)
        self._run(nearest_loops.nearest, queries, spans, distances, places)
        return distances, places

    def mix(
        self,
        logits: Float[Tensor, "queries vocabulary"],
        queries: Queries,
        spans: Spans,
        count: int,
        settings: tuple[float, float, float],
    ) -> None:
        """Mix the tokens of the nearest entries in place into logits, by temperature, reach and weight."""
        from regard.translation.datastore import nearest_loops

        loop = partial(nearest_loops.mix, self.tokens.numpy(), tuple(map(np.float32, settings)))
        distances = torch.empty(len(queries), count)
        places = torch.empty(len(queries), count, dtype=torch.int64)
        self._run(loop, queries, spans, distances, places, logits)

    def _run(self, loop: Any, queries: Queries, spans: Spans, *answers: Tensor) -> None:
        """Call a loop for shares of the queries; it writes the answers."""
        tensors = queries.contiguous(), spans.numbers.contiguous(), spans.factors, *answers
        rows, entries = (
            [tensor.numpy() for tensor in tensors],
            (self.starts, self.codes.reshape(-1)),
        )

        def compute(begin: int, end: int) -> None:
            loop(*entries, *(array[begin:end] for array in rows))

        run_shares(len(queries), compute, least=_LEAST)

    def _nearest_plain(self, queries: Queries, spans: Spans, count: int) -> tuple[Any, Any]:
        distances = torch.full((len(queries), count), torch.inf)
        places = torch.full((len(queries), count), -1)
        for row, (numbers, factors) in enumerate(zip(spans.numbers, spans.factors, strict=True)):
            read = [
                (n, factor)
                for n, factor in zip(numbers.tolist(), factors.tolist(), strict=True)
                if n >= 0
            ]
            ranges = [np.arange(self.starts[n], self.starts[n + 1]) for n, _ in read]
            entries = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *ranges]))
            scale = torch.tensor([factor for _, factor in read]).repeat_interleave(
                torch.tensor(list(map(len, ranges)), dtype=torch.int64)
            )
            codes = torch.from_numpy(self.codes[entries.numpy()]).float()
            squares = (queries[row] - codes).square().sum(1) * scale
            order = squares.argsort(stable=True)[:count]
            distances[row, : len(order)] = squares[order]
            places[row, : len(order)] = entries[order]
        return distances, places
