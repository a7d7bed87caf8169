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
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.datastore import Datastore, Mixing, Space
from regard.translation.datastore.table import Queries, Reading, Spans, Table
from regard.translation.engines.engine import SearchEngine
from regard.translation.models.protocol import Lengths, Logits, SourceIds, State, Words, as_state


@dataclass(frozen=True)
class Recall:
    """Reads a datastore for the states of a model.

    Attributes:
        tables: the entries that are read, by their lists and by their sentences.
        mixing: how; that of the datastore by default.
        decode: the text of source ids, by which similar sentences are looked up.
    """

    datastore: Datastore
    tables: tuple[Table, Table]
    mixing: Mixing
    decode: Callable[[Sequence[int]], str]

    @classmethod
    def of(
        cls, datastore: Datastore, mixing: Mixing, decode: Callable[[Sequence[int]], str]
    ) -> Self:
        tables = datastore.tables(lists=bool(mixing.lists), sentences=bool(mixing.similar))
        return cls(datastore, tables, mixing, decode)

    @property
    def adds(self) -> bool:
        """Whether the mixture differs from the model."""
        return self.mixing.weight > 0 and any(map(len, self.tables))

    @cached_property
    def space(self) -> Space:
        """That of the codes of a datastore that has entries."""
        assert self.datastore.space is not None
        return self.datastore.space

    def similar(
        self, source: SourceIds, lengths: Lengths, counts: Sequence[int] | None = None
    ) -> Spans:
        """The stored sentences that are most similar to each source; with `counts`, as often as each says."""
        if self.mixing.similar:
            rows = zip(source.tolist(), lengths.tolist(), strict=True)
            texts = [self.decode(ids[: length - 1]) for ids, length in rows]
            numbers, similarity = self.datastore.similar(texts, self.mixing.similar)
            sentences = self.tables[1]
            without_states = numbers >= len(sentences.starts) - 1
            factors = 1 / (1 + self.mixing.likeness * similarity)
            spans = Spans(sentences, numbers.masked_fill(without_states, -1), factors).gathered()
        else:
            spans = Spans.none(len(source))
        if counts is None:
            return spans
        return spans.select(torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)))

    def _reading(
        self, hidden: Float[Tensor, "rows width"], similar: Spans, compiled: bool
    ) -> tuple[Queries, Reading]:
        """The states as queries, and what they read."""
        points = self.space.project(hidden)
        if self.mixing.lists:
            closeness = self.space.closeness(points)
            lists = Spans.nearest(self.tables[0], closeness, self.mixing.lists, compiled=compiled)
        else:
            lists = Spans.none(len(points))
        return self.space.queries(points), Reading(lists, similar)

    def nearest(
        self,
        hidden: Float[Tensor, "rows width"],
        similar: Spans,
        count: int,
        *,
        compiled: bool = False,
    ) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"], Int[Tensor, "rows few"]]:
        """The squared distances of the nearest entries, in the unit of temperatures, their tokens and sentences.

        Where there are fewer, inf, -1 and -1.
        """
        queries, reading = self._reading(hidden, similar, compiled)
        squares, places = reading.nearest(queries, count, compiled=compiled)
        return squares * self.space.unit, reading.tokens(places), reading.sentences(places)

    def weights(self, distances: Float[Tensor, "rows few"]) -> Float[Tensor, "rows few"]:
        """The shares of entries at these distances; what is missing to 1 is the model's."""
        beyond = distances.new_full((len(distances), 1), self.mixing.reach)
        together = torch.cat([distances, beyond], 1)
        return (-together / self.mixing.temperature).softmax(-1)[:, :-1].contiguous()

    def mix(
        self,
        hidden: Float[Tensor, "rows width"],
        logits: Logits,
        similar: Spans,
        *,
        compiled: bool = False,
    ) -> Logits:
        """Log-probabilities of the mixture, in place where loops may."""
        in_place = logits.is_cpu and logits.dtype == torch.float32 and logits.is_contiguous()
        mixing, unit = self.mixing, self.space.unit
        if compiled and in_place:
            settings = mixing.temperature / unit, mixing.reach / unit, mixing.weight
            queries, reading = self._reading(hidden, similar, compiled)
            reading.mix(logits, queries, mixing.neighbours, settings)
            return logits
        added, tokens, _ = self._added(hidden, similar)
        memory = torch.zeros_like(logits, dtype=torch.float32)
        memory.scatter_add_(1, tokens.clamp(min=0).to(logits.device), added.to(logits.device))
        model = logits.float().log_softmax(-1) + (1 - memory.sum(1, keepdim=True)).log()
        return torch.logaddexp(model, memory.log())

    def _added(
        self, hidden: Float[Tensor, "rows width"], similar: Spans
    ) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"], Int[Tensor, "rows few"]]:
        """The probability that each of the nearest entries adds to its token; the tokens, and the sentences."""
        distances, tokens, sentences = self.nearest(hidden, similar, self.mixing.neighbours)
        return self.mixing.weight * self.weights(distances), tokens, sentences

    def origins(
        self,
        hidden: Float[Tensor, "rows width"],
        tokens: Int[Tensor, " rows"],
        similar: Spans,
    ) -> list[dict[int, float]]:
        """For each row the probability that stored sentences, by their numbers, add to a token."""
        added, next_tokens, sentences = self._added(hidden, similar)
        added = added * (next_tokens == tokens.cpu().unsqueeze(1))
        answer = []
        for numbers, row in zip(sentences.tolist(), added.tolist(), strict=True):
            sums = dict[int, float]()
            for number, probability in zip(numbers, row, strict=True):
                if probability > 0:
                    sums[number] = sums.get(number, 0.0) + probability
            answer.append(sums)
        return answer


@dataclass(frozen=True)
class RecallState:
    """The state of the model, and the stored sentences that each row reads."""

    state: State
    similar: Spans

    def select(self, rows: Int[Tensor, " kept"]) -> RecallState:
        return RecallState(self.state.select(rows), self.similar.select(rows.cpu()))


class RememberingEngine(SearchEngine):
    """Mixes at each step of another engine, which runs the model."""

    normalised = True

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
