"""Several models that write one translation together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigurationError
from regard.translation.models.protocol import (
    Lengths,
    Logits,
    SourceIds,
    State,
    TargetIds,
    TranslationModel,
    Watched,
    Words,
    as_state,
    log_probabilities,
)


@dataclass(frozen=True)
class EnsembleState:
    """The state of each model after the same words."""

    states: list[State]

    def select(self, rows: Int[Tensor, " kept"]) -> EnsembleState:
        return EnsembleState([state.select(rows) for state in self.states])


class Ensemble(TranslationModel):
    """p(y_t | y_1 ... y_(t-1), source) = 1/M sum_m p_m(y_t | y_1 ... y_(t-1), source).

    The mean of the models' probabilities, word by word; the models may be of different kinds, but
    read and write the same vocabularies. Sutskever et al. 2014 (arXiv 1409.3215), section 3.6, decode
    with an ensemble; that the probabilities are averaged, and not their logarithms, lets one model
    propose what another does not see.

    Raises:
        ConfigurationError: no models, or models on different devices.
    """

    def __init__(self, models: Sequence[TranslationModel]) -> None:
        super().__init__()
        if not models:
            raise ConfigurationError("an ensemble of no models: give at least one")
        devices = {parameter.device for model in models for parameter in model.parameters()}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise ConfigurationError(f"the models are on {names}: put them on one device")
        self.models = nn.ModuleList(models)
        self.padding = models[0].padding
        self.longest = min((m.longest for m in models if m.longest is not None), default=None)

    def __iter__(self) -> Iterator[TranslationModel]:
        return (model for model in self.models if isinstance(model, TranslationModel))

    def begin(self, source: SourceIds, lengths: Lengths) -> EnsembleState:
        return EnsembleState([model.begin(source, lengths) for model in self])

    def advance(self, words: Words, state: State) -> tuple[Logits, EnsembleState]:
        return step_all(list(self), words, state)

    def hidden(
        self, source: SourceIds, lengths: Lengths, target: TargetIds, watched: Watched | None = None
    ) -> Float[Tensor, "batch target vocabulary"]:
        """The mean log-probabilities; the models' own hidden states have no mean.

        The name of a look begins with the number of its model: "0.decoder.2.cross".
        """
        logits = []
        for number, model in enumerate(self):
            model_watched = None
            if watched is not None:
                only = watched.only and watched.only.removeprefix(f"{number}.")
                model_watched = Watched(only)
            logits.append(model.logits(model.hidden(source, lengths, target, model_watched)))
            if watched is not None and model_watched is not None:
                watched.looks |= {
                    f"{number}.{name}": look for name, look in model_watched.looks.items()
                }
        return mean_log(logits)

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        return hidden


def step_all(models: Sequence[Any], words: Words, state: State) -> tuple[Logits, EnsembleState]:
    """A step of each model, or of the engine that runs it, and the log of the mean of their probabilities."""
    states = as_state(EnsembleState, state).states
    steps = [model.step(words, each) for model, each in zip(models, states, strict=True)]
    return mean_log([logits for logits, _ in steps]), EnsembleState([after for _, after in steps])


def mean_log(
    logits: Sequence[Float[Tensor, "*batch vocabulary"]],
) -> Float[Tensor, "*batch vocabulary"]:
    """log of the mean of softmax(logits), in float32: log 1/M sum_m exp log p_m.

    >>> mean_log([torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, -1e9]])]).exp()
    tensor([[0.7500, 0.2500]])
    """
    together = torch.stack([log_probabilities(each) for each in logits]).logsumexp(0)
    return together - math.log(len(logits))
