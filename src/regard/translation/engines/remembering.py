"""An engine that mixes what a model expects next with what followed in sentences that it has read.

    p(y) = (1 - w) p_model(y) + w sum_i a_i [y_i = y]        i over the k nearest stored states
    a = softmax(-d / T), with one more term at the distance `reach`, whose share is p_model's

kNN-MT (Khandelwal et al. 2021, arXiv 2010.00710), over codes of components in 8 bits. With `similar`, the states of the
most similar sentences are read (Meng et al. 2022, arXiv 2105.14528), alone or beside those of the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.datastore import Datastore, Mixing
from regard.translation.datastore.table import Table
from regard.translation.engines.engine import SearchEngine
from regard.translation.models.protocol import Lengths, Logits, SourceIds, State, Words, as_state

Spans = Int[Tensor, "rows spans"]


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of some states.

    Attributes:
        weights: 0 where there are fewer.
        tokens: what followed each.
        sentences: the number of the stored pair of each.
    """

    weights: Float[Tensor, "rows few"]
    tokens: Int[Tensor, "rows few"]
    sentences: Int[Tensor, "rows few"]


@dataclass(frozen=True)
class Recall:
    """Reads a datastore for the states of a model.

    Attributes:
        decode: the text of source ids, by which similar sentences are looked up.
        mixing: how; that of the datastore by default.
    """

    datastore: Datastore
    mixing: Mixing
    decode: Callable[[Sequence[int]], str]

    @cached_property
    def table(self) -> Table:
        """The entries in the spans that are read: those of the lists, then those of the sentences."""
        store, mixing = self.datastore, self.mixing
        if not mixing.similar:
            return store.by_list()
        return (
            store.by_list().with_later(store.by_sentence()) if mixing.lists else store.by_sentence()
        )

    def similar(
        self, source: SourceIds, lengths: Lengths, counts: Sequence[int] | None = None
    ) -> Spans | None:
        """The spans of the stored sentences that are most similar to each source; None where none are read.

        With `counts`, as often as each says.
        """
        if not self.mixing.similar or not len(self.datastore):
            return None
        rows = zip(source.tolist(), lengths.tolist(), strict=True)
        texts = [self.decode(ids[: length - 1]) for ids, length in rows]
        spans = self.datastore.similar(texts, self.mixing.similar)
        spans = torch.where(spans < 0, spans, spans + self._lists)
        spans = spans.masked_fill(spans >= len(self.table.starts) - 1, -1)
        return spans if counts is None else spans.repeat_interleave(torch.tensor(counts), 0)

    @property
    def _lists(self) -> int:
        """How many spans of the table are lists."""
        space = self.datastore.space
        return 0 if space is None or not self.mixing.lists else len(space.centroids)

    def distances(
        self,
        hidden: Float[Tensor, "rows width"],
        spans: Spans | None,
        count: int,
        *,
        compiled: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Squared distances, in the unit of temperatures, and the places in the table."""
        space = self.datastore.space
        if space is None or not len(self.datastore):
            shape = len(hidden), count
            return torch.full(shape, torch.inf), torch.full(shape, -1)
        points = space.project(hidden)
        if self.mixing.lists:
            lists = space.nearest_lists(points, self.mixing.lists)
            spans = lists if spans is None else torch.cat([lists, spans], 1)
        assert spans is not None
        squares, places = self.table.nearest(points, spans, count, compiled=compiled)
        return squares * (space.scale**2 / space.variance), places

    def neighbours(
        self, hidden: Float[Tensor, "rows width"], spans: Spans | None, *, compiled: bool = False
    ) -> Neighbours:
        count = self.mixing.neighbours
        distances, places = self.distances(hidden, spans, count, compiled=compiled)
        weights = self.weights(distances)
        table = self.table
        if not len(table.tokens):
            return Neighbours(weights, places.clamp(min=0), places)
        read = places.clamp(min=0)
        return Neighbours(weights, table.tokens[read], table.sentences[read])

    def weights(self, distances: Float[Tensor, "rows few"]) -> Float[Tensor, "rows few"]:
        """The shares of entries at these distances; what is missing to 1 is the model's."""
        beyond = distances.new_full((len(distances), 1), self.mixing.reach)
        together = torch.cat([distances, beyond], 1)
        return (-together / self.mixing.temperature).softmax(-1)[:, :-1].contiguous()

    def mix(
        self,
        hidden: Float[Tensor, "rows width"],
        logits: Logits,
        spans: Spans | None,
        *,
        compiled: bool = False,
    ) -> Logits:
        """Logits of the mixture, in place where loops may. Those of tokens that no neighbour has stay."""
        near = self.neighbours(hidden, spans, compiled=compiled)
        if compiled and logits.is_cpu and logits.dtype == torch.float32 and logits.is_contiguous():
            from regard.translation.datastore import nearest_loops

            arrays = [each.numpy() for each in (logits, near.weights, near.tokens)]
            nearest_loops.mix(*arrays, np.float32(self.mixing.weight))
            return logits
        logits = logits.float()
        weights, tokens = near.weights.to(logits.device), near.tokens.to(logits.device)
        # p = e^l / Z becomes (e^l + Z w q / r) r / Z, r = 1 - w sum(a): a softmax takes off the common factor.
        same = tokens.unsqueeze(2) == tokens.unsqueeze(1)
        shares = (same * weights.unsqueeze(1)).sum(2)  # q of each neighbour's token
        weight = self.mixing.weight
        odds = (weight * shares / (1 - weight * weights.sum(1, keepdim=True))).log()
        added = logits.logsumexp(-1, keepdim=True) + odds
        return logits.scatter(1, tokens, torch.logaddexp(logits.gather(1, tokens), added))

    def origins(
        self, hidden: Float[Tensor, "rows width"], tokens: Int[Tensor, " rows"], spans: Spans | None
    ) -> list[dict[int, float]]:
        """For each row the probability that stored sentences, by their numbers, add to a token."""
        near = self.neighbours(hidden, spans)
        added = self.mixing.weight * near.weights * (near.tokens == tokens.cpu().unsqueeze(1))
        answer = []
        for numbers, weights in zip(near.sentences.tolist(), added.tolist(), strict=True):
            sums: dict[int, float] = {}
            for number, weight in zip(numbers, weights, strict=True):
                if weight > 0:
                    sums[number] = sums.get(number, 0.0) + weight
            answer.append(sums)
        return answer


@dataclass(frozen=True)
class RecallState:
    """The state of the model, and the stored sentences that each row reads."""

    state: State
    spans: Spans | None

    def select(self, rows: Int[Tensor, " kept"]) -> RecallState:
        spans = None if self.spans is None else self.spans[rows.cpu()]
        return RecallState(self.state.select(rows), spans)


class RememberingEngine(SearchEngine):
    """Mixes at each step of another engine, which runs the model."""

    def __init__(self, engine: SearchEngine, recall: Recall) -> None:
        self.model, self.reason = engine.model, engine.reason
        self.engine, self.recall = engine, recall
        self.name = f"{engine.name} with a memory"
        self.loops = False

    def begin(self, source: SourceIds, lengths: Lengths) -> RecallState:
        state = self.engine.begin(source, lengths)
        self.loops = self.engine.loops
        return RecallState(state, self.recall.similar(source, lengths))

    def step(self, words: Words, state: State) -> tuple[Logits, RecallState]:
        before = as_state(RecallState, state)
        hidden, logits, after = self.engine.step_hidden(words, before.state)
        mixed = self.recall.mix(hidden, logits, before.spans, compiled=self.loops)
        return mixed, RecallState(after, before.spans)
