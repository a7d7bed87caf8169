"""The protocol every translation model keeps, so that search, training and pictures never ask which it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, Self, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.looks.look import Look

# "encoder.0.self", "decoder.1.cross", ... -> a look over (batch, heads, queries, keys)
Looks = dict[str, Look]


T = TypeVar("T")


class Encoded(Protocol):
    """Source sentences as the decoder reads them: one row a sentence."""

    @property
    def rows(self) -> int: ...

    def select(self, rows: Int[Tensor, " kept"]) -> Self: ...


class State(Protocol):
    """The decoder's state after some words, its source included: one row a hypothesis."""

    def select(self, rows: Int[Tensor, " kept"]) -> Self: ...


class TranslationModel(nn.Module, ABC):
    """An encoder-decoder: p(target | source), one word at a time.

    Word ids are those of the vocabularies; a target that is read begins with the begin-of-sentence id.
    """

    padding: int

    @property
    def longest(self) -> int | None:
        """The most positions of a sentence that it can number; None where any length goes."""
        return None

    @abstractmethod
    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> Encoded:
        """The sources as memories to read. Positions from `lengths` on are padding and never read."""

    @abstractmethod
    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target width"]:
        """Teacher forcing: the output layer's input after each word of `target`."""

    def words(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "words width"]:
        """`hidden` at the words of each target alone, one sentence after the other."""
        place = torch.arange(target.shape[1], device=target.device)
        return self.hidden(source, source_lengths, target)[place < target_lengths[:, None]]

    @property
    def projection(self) -> nn.Linear | None:
        """The linear layer that `logits` is, so that a loss may take it apart; None where it is more."""
        return None

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """The output layer, apart, so that a loss can call it in chunks and on real positions only."""

    @abstractmethod
    def start(self, encoded: Encoded) -> State:
        """The decoder before its first word."""

    def begin(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> State:
        """`start` of `encode`: the decoder of these sources before its first word."""
        return self.start(self.encode(source, lengths))

    @abstractmethod
    def advance(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch width"], State]:
        """Read one word a row: the output layer's input. The given state is used up: continue with the returned one."""

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]:
        """`logits` of `advance`, which equal those of teacher forcing."""
        hidden, after = self.advance(words, state)
        return self.logits(hidden), after

    @abstractmethod
    def looks(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Looks:
        """Every look of a forced translation: queries are the words read, keys the words looked at."""

    def watched(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
        name: str,
    ) -> tuple[Float[Tensor, "batch target width"], Look]:
        """`hidden`, and one of `looks` of the same pass, for a loss of both. Raises `KeyError`: no such look."""
        raise KeyError(name)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """The logits of the word after each word of `target`."""
        return self.logits(self.hidden(source, lengths, target))


def own(kind: type[T], given: object) -> T:
    """The given object, which must be of this kind: models take back only states they made themselves."""
    if not isinstance(given, kind):
        raise TypeError(f"expected the model's own {kind.__name__}, got a {type(given).__name__}")
    return given
