"""Approximate search, without a bound: inverted lists of faiss over the keys of a memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.constants import whole
from regard.attention.scores import ScaledDot
from regard.attention.scores.score import pairwise, unit
from regard.memory.bounded import Linear
from regard.memory.found import EmptyMemoryError
from regard.memory.memory import Memory
from regard.memory.reading import EMPTY

TRAINED = 64  # keys for each list that the centroids are learnt from


@dataclass(frozen=True)
class Nearest:
    """What an approximate search found: scores, and no weights, which need the scores of all entries.

    Args:
        scores: Largest first; -inf where the lists that were searched hold fewer entries.
        payloads: The payloads stored with the entries, or None.
        positions: Their positions in the memory; -1 where there are fewer.
    """

    scores: Float[Tensor, "queries few"]
    payloads: list[list[Any]]
    positions: Int[Tensor, "queries few"]


class NearestIndex:
    """Searches some of the entries of a memory: quick, and without a promise of what it misses.

    Keys lie in lists around centroids, and a search compares those of the lists nearest to the query (inverted
    file; Sivic and Zisserman 2003). Use `recall` to measure on your own queries which share of the true best
    entries it finds. `Memory.find` is exact. The index holds all keys in RAM, in float32, and needs
    ``pip install 'regard[faiss]'``.

    Args:
        memory: Read by a dot product, scaled dot product, `General` or `Cosine`, or a soft cap of these. The index
            is of its entries now: make another one after a change.
        lists: How many centroids, from 1 on; 4 sqrt(entries) by default.

    Raises:
        ImportError: If faiss is not installed.
        ValueError: If the score is another one, `lists` is below 1, or the entries have batch axes.
        EmptyMemoryError: If the memory holds nothing.
    """

    def __init__(self, memory: Memory, lists: int | None = None) -> None:
        try:
            import faiss
        except ImportError:
            raise ImportError(
                "faiss is not installed, which searches approximately: pip install 'regard[faiss]'"
            ) from None
        count = len(memory)
        if not count:
            raise EmptyMemoryError(EMPTY)
        self.memory, self._count, self._changes = memory, count, memory.entries.changes
        width: Any = memory.entries.d_key
        self._width, pair_score = width, pairwise(memory.score)
        score = memory.score if pair_score is None else pair_score.capped()[0]
        query = torch.zeros(1, getattr(score, "d_query", width))
        self._by_length = self._form(query).by_length
        lists = round(4 * count**0.5) if lists is None else whole("lists", lists)
        lists = min(count, lists)
        quantizer = faiss.IndexFlatIP(width)
        self._index = faiss.IndexIVFFlat(quantizer, width, lists, faiss.METRIC_INNER_PRODUCT)
        self._index.cp.max_points_per_centroid = TRAINED
        self._index.cp.min_points_per_centroid = 1
        rows = [self._numbers(key) for _, key in memory.entries.key_blocks()]
        if rows[0].ndim > 2:
            raise ValueError("the keys have batch axes: an index needs keys (entries, width)")
        picks = np.random.default_rng(0).permutation(count)[: lists * TRAINED]
        self._index.train(np.concatenate(rows)[np.sort(picks)])
        for (places, _), keys in zip(memory.entries.key_blocks(), rows, strict=True):
            self._index.add_with_ids(keys, places.numpy())

    @torch.no_grad()
    def find(self, query: Any, k: int = 5, *, probes: int = 8) -> Nearest:
        """The best entries of the lists nearest to each query.

        Args:
            query: Vectors ``(queries, d_key)`` or one, or strings for the encoder.
            k: How many entries.
            probes: Lists that are searched: more find more, and take longer.

        Raises:
            ValueError: If k or probes is below 1, or entries were written, replaced on the disk, deleted or
                compacted since, or keys were changed in place, or the score became a cosine or another than one.
            ShapeError: If the queries have another width.
        """
        k, probes = whole("k", k), whole("probes", probes)
        if len(self.memory) != self._count:
            raise ValueError(
                f"the memory has {len(self.memory)} entries, the index {self._count}: make the index again"
            )
        if self.memory.entries.changes != self._changes:
            raise ValueError("entries of the memory have changed: make the index again")
        form = self._form(self.memory._vectors(query))
        if form.by_length != self._by_length:
            raise ValueError("the memory has another score by now: make the index again")
        self._index.nprobe = min(probes, self._index.nlist)
        products, places = self._index.search(np.ascontiguousarray(form.query.float().numpy()), k)
        scores, positions = torch.from_numpy(products), torch.from_numpy(places)
        if form.cap:
            scores = form.cap * torch.tanh(scores / form.cap)
        payloads = self.memory.entries.payloads
        return Nearest(
            scores.masked_fill(positions < 0, -torch.inf),
            [
                [None if payloads is None or place < 0 else payloads[place] for place in row]
                for row in positions.tolist()
            ],
            positions,
        )

    def recall(self, queries: Any, k: int = 5, *, probes: int = 8) -> float:
        """The share of the entries of `Memory.find` that `find` finds, over these queries."""
        exact = self.memory.find(self.memory._vectors(queries), k).positions
        near = self.find(queries, k, probes=probes).positions
        return float((exact.unsqueeze(-1) == near.unsqueeze(-2)).any(-1).double().mean())

    def _form(self, query: Tensor) -> Linear:
        score = self.memory.score or ScaledDot()
        form = None
        if query.dim() == 2:
            form = Linear.of(score, query.double(), self._width, 1.0)
        if form is None:
            raise ValueError(
                f"score {score} of queries {tuple(query.shape)}: an index needs products of (queries, width)"
            )
        return form

    def _numbers(self, key: Tensor) -> np.ndarray:
        wide = key.detach().float().cpu()
        return np.ascontiguousarray((unit(wide) if self._by_length else wide).numpy())
