"""The protocol every translation model keeps, so that search, training and pictures never ask which it is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.looks.look import Look
from regard.errors import ModelError

# "encoder.0.self", "decoder.1.cross", ... -> a look over (batch, heads, queries, keys)
Looks = dict[str, Look]

DAMAGED = (
    "the model's output is not a number: its weights are damaged, or its numbers overflow "
    "in this precision (try float32)"
)

# Ids, padded, of sources with their ends and of targets that begin with the begin-of-sentence id; the sources' lengths.
SourceIds = Int[Tensor, "batch source"]
TargetIds = Int[Tensor, "batch target"]
Lengths = Int[Tensor, " batch"]
# The id of the next word of each row, and the logits of the word after it.
Words = Int[Tensor, " rows"]
Logits = Float[Tensor, "rows vocabulary"]

# A source of more pieces is cut: memory stays bounded whatever a line holds.
LONGEST_SOURCE = 512

T = TypeVar("T")


@dataclass
class Watched:
    """Collects the looks of a pass, all or one, by name; without it, a model keeps none.

    Attributes:
        only: the name of the one look; None for all.
        alone: whether the pass may end after that look, as nobody reads its output.
    """

    only: str | None = None
    alone: bool = False
    looks: Looks = field(default_factory=dict)

    def wants(self, name: str) -> bool:
        return self.only in (None, name)

    @property
    def may_end(self) -> bool:
        return self.alone and self.only in self.looks


class State(Protocol):
    """The decoder's state after some words, its source included: one row a hypothesis."""

    def select(self, rows: Int[Tensor, " kept"]) -> Self: ...


class TranslationModel(nn.Module, ABC):
    """An encoder-decoder: p(target | source), one word at a time.

    Word ids are those of the vocabularies; a target that is read begins with the begin-of-sentence id.

    Attributes:
        output: the output layer, from hidden states to logits; an ensemble has none.
        longest: the most positions of a sentence that it can number; None where any length goes.
    """

    padding: int
    output: nn.Linear
    longest: int | None = None

    @property
    def longest_source(self) -> int:
        """The most pieces of a source that are read; its end takes one more position."""
        return LONGEST_SOURCE if self.longest is None else min(LONGEST_SOURCE, self.longest - 1)

    @abstractmethod
    def hidden(
        self, source: SourceIds, lengths: Lengths, target: TargetIds, watched: Watched | None = None
    ) -> Float[Tensor, "batch target width"]:
        """Teacher forcing: the output layer's input after each word of `target`.

        Positions of the source from `lengths` on are padding and never read. Queries of the looks that `watched`
        collects are the words read, keys the words looked at.
        """

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """The output layer, apart, so that a loss can call it in chunks and on real positions only."""
        logits: Tensor = self.output(hidden)
        return logits

    def forward(
        self, source: SourceIds, lengths: Lengths, target: TargetIds
    ) -> Float[Tensor, "batch target vocabulary"]:
        """The logits of the word after each word of `target`."""
        return self.logits(self.hidden(source, lengths, target))

    @abstractmethod
    def begin(self, source: SourceIds, lengths: Lengths) -> State:
        """The decoder of these sources before its first word."""

    @abstractmethod
    def advance(self, words: Words, state: State) -> tuple[Float[Tensor, "batch width"], State]:
        """Read one word a row: the output layer's input. The given state is used up: continue with the returned one."""

    def step(self, words: Words, state: State) -> tuple[Logits, State]:
        """`logits` of `advance`, which equal those of teacher forcing."""
        hidden, next_state = self.advance(words, state)
        return self.logits(hidden), next_state

    def looks(
        self, source: SourceIds, lengths: Lengths, target: TargetIds, only: str | None = None
    ) -> Looks:
        """Every look of a forced translation, or the one of that name, if there is such a look."""
        watched = Watched(only, alone=True)
        self.hidden(source, lengths, target, watched)
        return watched.looks


def as_state(kind: type[T], state: object) -> T:
    """The given state, which must be of this kind: models take back only states they made themselves."""
    if not isinstance(state, kind):
        raise TypeError(f"expected the model's own {kind.__name__}, got a {type(state).__name__}")
    return state


def log_probabilities(
    logits: Float[Tensor, "*rows vocabulary"],
) -> Float[Tensor, "*rows vocabulary"]:
    """log p of every next word, in float32 whatever the model computes in; a tensor of its own.

    Raises:
        ModelError: a logit is not a number, or infinite.
    """
    result = logits.log_softmax(-1, dtype=torch.float32)
    # One NaN or +inf makes its whole row NaN: one column shows all of them.
    if bool(result[..., :1].isnan().any()):
        raise ModelError(DAMAGED)
    return result
