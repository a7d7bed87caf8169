"""Encoded sentences, the decoder's state, and how it looks at them: one attention of the papers, or several heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.attend import attend, look
from regard.attention.caches import HeadMemory
from regard.attention.heads import MultiHeadAttention
from regard.attention.kernels.additive.steps import StepAdditive, attend_step, prepare_steps
from regard.attention.looks.look import Look
from regard.attention.normalisers import Normaliser, as_normaliser
from regard.attention.scores import Score, build, prepare
from regard.translation.models.recurrent.cells import CellState
from regard.translation.settings.recurrent import RecurrentSettings

States = Float[Tensor, "batch source d_memory"]
Readable = Bool[Tensor, "batch 1 source"] | None


class SourceKeys(NamedTuple):
    """The keys of one attention, prepared once a sentence, and the score of queries against them."""

    score: Score
    keys: Float[Tensor, "batch source d_prepared"]

    def select(self, rows: Int[Tensor, " kept"]) -> SourceKeys:
        return SourceKeys(self.score, self.keys[rows])


@dataclass(frozen=True)
class Source:
    """The encoded sentences, one row each, and the decoder's first state, a layer.

    Attributes:
        keys: The keys of attention: `SourceKeys`, or the `HeadMemory` of `MultiHeadAttention.remember`;
            None without attention.
        readable: True where a sentence has a word; None where every position has one.
    """

    states: Float[Tensor, "batch source d_memory"]
    keys: Any
    readable: Readable
    initial: tuple[CellState, ...]

    def select(self, rows: Int[Tensor, " kept"]) -> Source:
        keys = None if self.keys is None else self.keys.select(rows)
        readable = None if self.readable is None else self.readable[rows]
        return Source(self.states[rows], keys, readable, _select(self.initial, rows))


@dataclass(frozen=True)
class DecoderState:
    """The decoder between two words: the state of every layer, and the sentences it reads.

    `feed` is an input of the next step from the step before, besides its state; None where there is none.
    """

    layers: tuple[CellState, ...]
    feed: Float[Tensor, "batch d_feed"] | None
    source: Source

    def select(self, rows: Int[Tensor, " kept"]) -> DecoderState:
        feed = None if self.feed is None else self.feed[rows]
        return DecoderState(_select(self.layers, rows), feed, self.source.select(rows))


def _select(layers: tuple[CellState, ...], rows: Tensor) -> tuple[CellState, ...]:
    return tuple(tuple(part[rows] for part in layer) for layer in layers)


class OneCrossAttention(nn.Module):
    """``c = sum_j a_j h_j``, ``a = normalise(score(s, h))`` (arXiv 1409.0473, equations 5 and 6)."""

    def __init__(self, score: Score, normaliser: Normaliser) -> None:
        super().__init__()
        self.score, self.normaliser = score, normaliser

    def keys(self, states: States, readable: Readable) -> SourceKeys:
        """The keys of a `Source`, computed once a sentence."""
        prepared = prepare(self.score, states)
        return SourceKeys(*prepare_steps(*prepared, self.normaliser, readable))

    def forward(
        self, query: Float[Tensor, "batch queries d_query"], source: Source
    ) -> Float[Tensor, "batch queries d_memory"]:
        (score, keys), mask = source.keys, source.readable
        if isinstance(score, StepAdditive) and query.shape[-2] == 1:
            return attend_step(query, keys, source.states, score=score, mask=mask)
        return attend(
            query, keys, source.states, score=score, normaliser=self.normaliser, mask=mask
        )

    def look(self, query: Float[Tensor, "batch queries d_query"], source: Source) -> Look:
        """The weights of the contexts, over (batch, heads, queries, source)."""
        score, keys = source.keys
        mask = None if source.readable is None else source.readable[:, None]
        options: dict[str, Any] = {"normaliser": self.normaliser, "mask": mask}
        answer: Look = look(query[:, None], keys[:, None], score=score, **options)
        return answer


class HeadsCrossAttention(nn.Module):
    """A `MultiHeadAttention` in the place of the papers' one (arXiv 1706.03762, section 3.2.2)."""

    def __init__(self, heads: MultiHeadAttention) -> None:
        super().__init__()
        self.heads = heads

    def keys(self, states: States, readable: Readable) -> HeadMemory:
        return self.heads.remember(states)

    def forward(self, query: Tensor, source: Source) -> Tensor:
        context: Tensor = self.heads(query, memory=source.keys, mask=source.readable)
        return context

    def look(self, query: Tensor, source: Source) -> Look:
        return self.heads.read(query, memory=source.keys, mask=source.readable)[1]


# From queries of the decoder to blends of the encoder's states.
CrossAttention = OneCrossAttention | HeadsCrossAttention


def new_attention(settings: RecurrentSettings) -> CrossAttention:
    """The attention of a configuration; its contexts are as wide as the encoder's states."""
    query, memory, heads = settings.decoder_width, settings.memory_width, settings.heads
    if heads == 1:
        score = build(settings.score, query, memory, settings.attention_width)
        return OneCrossAttention(score, as_normaliser(settings.normaliser))
    width = query // heads
    score = build(settings.score, width, width, settings.attention_width, heads)
    return HeadsCrossAttention(
        MultiHeadAttention(
            query, heads, d_key=memory, d_output=memory, score=score, normaliser=settings.normaliser
        )
    )
