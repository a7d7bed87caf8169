"""Events of a training, and the observers that receive them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Stepped:
    """A report. The loss is in nats a target token, the mean since the last report."""

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    epochs: int = 0  # the passes of the budget; 0 without `max_epochs`


class Sample(NamedTuple):
    """A sentence of the validation set, its reference and its greedy translation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validated:
    """A validation. The model with the largest `score` is the best."""

    step: int
    loss: float
    bleu: float
    chrf: float
    exact: float
    score: float
    best: bool
    samples: tuple[Sample, ...] = ()


class Observer:
    """Receives all events and ignores them. Override the methods that you need."""

    def note(self, text: str) -> None:
        """Receive a message for the user."""

    def stepped(self, event: Stepped, total: int) -> None:
        """Receive a report, after every `log_every` steps."""

    def advanced(self, step: int, total: int) -> None:
        """Receive the number of a step, after every step."""

    def validated(self, event: Validated) -> None:
        """Receive a validation."""


class Observers(Observer):
    """Passes all events on to several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def note(self, text: str) -> None:
        for each in self.observers:
            each.note(text)

    def stepped(self, event: Stepped, total: int) -> None:
        for each in self.observers:
            each.stepped(event, total)

    def advanced(self, step: int, total: int) -> None:
        for each in self.observers:
            each.advanced(step, total)

    def validated(self, event: Validated) -> None:
        for each in self.observers:
            each.validated(event)
