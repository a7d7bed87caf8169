"""The protocol of a search, and the base class of engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.translation.models.protocol import State, TranslationModel


class Searched(Protocol):
    """Searches call this: an engine, a model that runs its own layers, or a narrowed engine."""

    @property
    def longest(self) -> int | None: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> State: ...

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]: ...


@runtime_checkable
class NarrowedByLists(Protocol):
    """A decoder state that computes only the logits of listed words."""

    def narrow(
        self, lists: Int[Tensor, "sentences listed"], sentences: Int[Tensor, " rows"]
    ) -> None:
        """From the next step on, return the logits of the words in each row's list; -inf for -1, no word.

        Args:
            lists: word ids, padded with -1.
            sentences: the list of each row.
        """


class SearchEngine(ABC):
    """Runs one model for searches. Weights are read when the engine is made or first used.

    Attributes:
        name: "layers" or "compiled".
        reason: why a faster engine was not chosen; "" for the fastest.
        loops: whether the search's own steps run as compiled loops.
    """

    name: str
    reason: str = ""
    loops: bool = True
    model: TranslationModel

    @property
    def longest(self) -> int | None:
        """The most positions of a sentence; None where any length is possible."""
        return self.model.longest

    def modules(self) -> Iterator[nn.Module]:
        return self.model.modules()

    @abstractmethod
    def begin(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> State:
        """Encode the sources: the decoder's state before its first word. It can be narrowed by lists."""

    @abstractmethod
    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]:
        """The logits of the next word, valid until the next step. The given state is used up."""
