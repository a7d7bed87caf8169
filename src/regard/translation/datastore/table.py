"""Entries in RAM, in spans that are read as a whole: the lists of near states, or the stored sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.loops.threads import run_shares

_LEAST = 12  # queries for which a second thread pays


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

    def with_later(self, later: Table) -> Table:
        """The spans of this table, then those of another one."""
        return Table(
            np.concatenate([self.codes, later.codes]),
            torch.cat([self.tokens, later.tokens]),
            torch.cat([self.sentences, later.sentences]),
            np.concatenate([self.starts, later.starts[1:] + len(self.tokens)]),
        )

    def nearest(
        self,
        queries: Float[Tensor, "queries components"],
        spans: Int[Tensor, "queries spans"],
        count: int,
        *,
        compiled: bool,
    ) -> tuple[Float[Tensor, "queries few"], Int[Tensor, "queries few"]]:
        """The squared distances, in units of codes, and the places of the nearest entries within spans.

        Where a query's spans hold fewer entries, inf and -1. A span of -1 holds none.
        """
        if not compiled:
            return self._nearest_plain(queries, spans, count)
        from regard.translation.datastore import nearest_loops

        distances = torch.empty(len(queries), count)
        places = torch.empty(len(queries), count, dtype=torch.int64)
        arrays = [each.contiguous().numpy() for each in (queries, spans, distances, places)]
        flat = self.codes.reshape(-1)

        def search(begin: int, end: int) -> None:
            rows = [array[begin:end] for array in arrays]
            nearest_loops.nearest(*rows[:2], self.starts, flat, *rows[2:])

        run_shares(len(queries), search, least=_LEAST)
        return distances, places

    def _nearest_plain(self, queries: Tensor, spans: Tensor, count: int) -> tuple[Any, Any]:
        distances = torch.full((len(queries), count), torch.inf)
        places = torch.full((len(queries), count), -1)
        for row, numbers in enumerate(spans.tolist()):
            ranges = [np.arange(self.starts[n], self.starts[n + 1]) for n in numbers if n >= 0]
            entries = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *ranges]))
            codes = torch.from_numpy(self.codes[entries.numpy()]).float()
            squares = (queries[row] - codes).square().sum(1)
            order = squares.argsort(stable=True)[:count]
            distances[row, : len(order)] = squares[order]
            places[row, : len(order)] = entries[order]
        return distances, places
