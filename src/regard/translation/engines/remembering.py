"""An engine that mixes what a model expects next with what followed in sentences that it has read.

    p(y) = (1 - w) p_model(y) + w sum_i a_i [y_i = y]        i over the k nearest stored states
    a = softmax(-d / T), with one more term at the distance `reach`, whose share is p_model's

kNN-MT (Khandelwal et al. 2021, arXiv 2010.00710), over codes of components in 8 bits. With `similar`, the states of the
most similar sentences are read (Meng et al. 2022, arXiv 2105.14528), alone or beside those of the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.datastore import Datastore, Mixing
from regard.translation.datastore.table import Spans, Table
from regard.translation.engines.engine import SearchEngine
from regard.translation.models.protocol import Lengths, Logits, SourceIds, State, Words, as_state


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
        table: the entries in the spans that are read: those of the lists, then those of the sentences.
        mixing: how; that of the datastore by default.
        decode: the text of source ids, by which similar sentences are looked up.
    """

    datastore: Datastore
    table: Table
    mixing: Mixing
    decode: Callable[[Sequence[int]], str]

    @classmethod
    def of(
        cls, datastore: Datastore, mixing: Mixing, decode: Callable[[Sequence[int]], str]
    ) -> Self:
        table = datastore.table(lists=bool(mixing.lists), sentences=bool(mixing.similar))
        return cls(datastore, table, mixing, decode)

    def similar(
        self, source: SourceIds, lengths: Lengths, counts: Sequence[int] | None = None
    ) -> Spans | None:
        """The spans of the stored sentences that are most similar to each source; None where none are read.

        With `counts`, as often as each says.
        """
        if not self.mixing.similar or not len(self.table):
            return None
        rows = zip(source.tolist(), lengths.tolist(), strict=True)
        texts = [self.decode(ids[: length - 1]) for ids, length in rows]
        numbers, similarity = self.datastore.similar(texts, self.mixing.similar)
        with_states = (numbers >= 0) & (numbers + self._lists < len(self.table.starts) - 1)
        numbers = (numbers + self._lists).masked_fill(~with_states, -1)
        spans = Spans(numbers, 1 / (1 + self.mixing.likeness * similarity))
        if counts is None:
            return spans
        return spans.select(torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)))

    @property
    def _lists(self) -> int:
        """How many spans of the table are lists."""
        space = self.datastore.space
        return 0 if space is None or not self.mixing.lists else len(space.centroids)

    def _reading(
        self, hidden: Float[Tensor, "rows width"], similar: Spans | None
    ) -> tuple[Tensor, Spans]:
        """The states in the unit of codes, and the spans that they read."""
        space = self.datastore.space
        assert space is not None
        points = space.project(hidden)
        if not self.mixing.lists:
            assert similar is not None
            return points, similar
        lists = Spans.plain(space.nearest_lists(points, self.mixing.lists))
        return points, lists if similar is None else lists.beside(similar)

    @property
    def _unit(self) -> float:
        """What a unit of the table's distances is, in that of temperatures."""
        space = self.datastore.space
        assert space is not None
        return float(space.scale**2 / space.variance)

    def distances(
        self,
        hidden: Float[Tensor, "rows width"],
        similar: Spans | None,
        count: int,
        *,
        compiled: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Squared distances, in the unit of temperatures, and the places in the table."""
        if not len(self.table):
            shape = len(hidden), count
            return torch.full(shape, torch.inf), torch.full(shape, -1)
        reading = self._reading(hidden, similar)
        squares, places = self.table.nearest(*reading, count, compiled=compiled)
        return squares * self._unit, places

    def neighbours(
        self, hidden: Float[Tensor, "rows width"], similar: Spans | None, *, compiled: bool = False
    ) -> Neighbours:
        count = self.mixing.neighbours
        distances, places = self.distances(hidden, similar, count, compiled=compiled)
        weights = self.weights(distances)
        table = self.table
        if not len(table):
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
        similar: Spans | None,
        *,
        compiled: bool = False,
    ) -> Logits:
        """Logits of the mixture, in place where loops may. Those of tokens that no neighbour has stay."""
        in_place = logits.is_cpu and logits.dtype == torch.float32 and logits.is_contiguous()
        if compiled and in_place and len(self.table):
            mixing, unit = self.mixing, self._unit
            settings = mixing.temperature / unit, mixing.reach / unit, mixing.weight
            self.table.mix(logits, *self._reading(hidden, similar), mixing.neighbours, settings)
            return logits
        near = self.neighbours(hidden, similar)
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
        self,
        hidden: Float[Tensor, "rows width"],
        tokens: Int[Tensor, " rows"],
        similar: Spans | None,
    ) -> list[dict[int, float]]:
        """For each row the probability that stored sentences, by their numbers, add to a token."""
        near = self.neighbours(hidden, similar)
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
    similar: Spans | None

    def select(self, rows: Int[Tensor, " kept"]) -> RecallState:
        similar = None if self.similar is None else self.similar.select(rows.cpu())
        return RecallState(self.state.select(rows), similar)


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
        recalling = as_state(RecallState, state)
        hidden, logits, model_state = self.engine.step_hidden(words, recalling.state)
        mixed = self.recall.mix(hidden, logits, recalling.similar, compiled=self.loops)
        return mixed, RecallState(model_state, recalling.similar)
