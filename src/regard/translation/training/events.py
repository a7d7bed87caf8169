"""What a training tells while it runs; commands draw it, scripts may ignore it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Stepped:
    """A step was made. Loss in nats a target token, mean since the last report."""

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    # The passes of the budget; 0 without `max_epochs`.
    epochs: int = 0


class Sample(NamedTuple):
    """A sentence of the validation set, its reference and its greedy translation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validated:
    """The validation set was translated. `score` is what models are chosen by (larger is better)."""

    step: int
    loss: float
    bleu: float
    chrf: float
    exact: float
    score: float
    best: bool
    samples: tuple[Sample, ...] = ()


class Observer:
    """Hears of everything; does nothing with it. Override what is of interest."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def stepped(self, event: Stepped, total: int) -> None:
        """After every `log_every` steps."""

    def advanced(self, step: int, total: int) -> None:
        """After every step."""

    def validated(self, event: Validated) -> None:
        """After every validation."""


class Observers(Observer):
    """Passes on to several what it hears."""

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
