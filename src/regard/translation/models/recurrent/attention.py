"""How a decoder looks at the encoder's states: one attention of the papers, or several heads."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend, look
from regard.attention.heads import MultiHeadAttention
from regard.attention.looks.look import Look
from regard.attention.memory.heads import HeadMemory
from regard.attention.scores import Score, build, prepare
from regard.translation.models.recurrent.source import Source
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["CrossAttention", "HeadsAttention", "OneAttention", "new_attention"]

States = Float[Tensor, "batch source d_memory"]


class CrossAttention(nn.Module, ABC):
    """From queries of the decoder to blends of the encoder's states."""

    @abstractmethod
    def keys(self, states: States) -> Tensor | HeadMemory:
        """The keys of a `Source`, computed once a sentence."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "batch queries d_query"], source: Source
    ) -> Float[Tensor, "batch queries d_memory"]:
        """The context of each query."""

    @abstractmethod
    def look(self, query: Float[Tensor, "batch queries d_query"], source: Source) -> Look:
        """The weights of the contexts, over (batch, heads, queries, source)."""


class OneAttention(CrossAttention):
    """``c = sum_j a_j h_j``, ``a = softmax(score(s, h))`` (arXiv 1409.0473, equations 5 and 6)."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def keys(self, states: States) -> Tensor:
        _, keys = prepare(self.score, states)
        return keys

    def forward(self, query: Tensor, source: Source) -> Tensor:
        keys, score = self._prepared(source)
        return attend(query, keys, source.states, score=score, mask=source.readable)

    def look(self, query: Tensor, source: Source) -> Look:
        keys, score = self._prepared(source)
        mask = None if source.readable is None else source.readable[:, None]
        return look(query[:, None], keys[:, None], score=score, mask=mask)

    def _prepared(self, source: Source) -> tuple[Tensor, Score]:
        if not isinstance(source.keys, Tensor):
            raise TypeError("this source was not encoded for a single attention")
        score, _ = prepare(self.score, source.states[:0])
        return source.keys, score


class HeadsAttention(CrossAttention):
    """A `MultiHeadAttention` in the place of the papers' one (arXiv 1706.03762, section 3.2.2)."""

    def __init__(self, heads: MultiHeadAttention) -> None:
        super().__init__()
        self.heads = heads

    def keys(self, states: States) -> HeadMemory:
        return self.heads.remember(states)

    def forward(self, query: Tensor, source: Source) -> Tensor:
        context: Tensor = self.heads(query, memory=source.keys, mask=source.readable)
        return context

    def look(self, query: Tensor, source: Source) -> Look:
        keys = source.keys if isinstance(source.keys, HeadMemory) else None
        return self.heads.read(query, memory=keys, mask=source.readable)[1]


def new_attention(settings: RecurrentSettings) -> CrossAttention:
    """The attention of a configuration; its contexts are as wide as the encoder's states."""
    query, memory, heads = settings.decoder_width, settings.memory_width, settings.heads
    if heads == 1:
        return OneAttention(build(settings.score, query, memory, settings.attention_width))
    width = query // heads
    score = build(settings.score, width, width, settings.attention_width, heads)
    return HeadsAttention(
        MultiHeadAttention(query, heads, d_key=memory, d_output=memory, score=score)
    )
