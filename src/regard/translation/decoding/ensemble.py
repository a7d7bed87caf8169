"""Several models that write one translation together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigurationError
from regard.translation.decoding.limits import log_probabilities
from regard.translation.engines import SearchEngine, choose
from regard.translation.engines.layers import LayersState
from regard.translation.engines.listed import gather_listed
from regard.translation.models.protocol import Encoded, Looks, State, TranslationModel, own


@dataclass(frozen=True)
class EnsembleEncoded:
    """The sources as each model has encoded them."""

    each: list[Encoded]

    @property
    def rows(self) -> int:
        return self.each[0].rows

    def select(self, rows: Int[Tensor, " kept"]) -> EnsembleEncoded:
        return EnsembleEncoded([encoded.select(rows) for encoded in self.each])


@dataclass(frozen=True)
class EnsembleState:
    """What each model knows after the same words."""

    each: list[State]

    def select(self, rows: Int[Tensor, " kept"]) -> EnsembleState:
        return EnsembleState([state.select(rows) for state in self.each])


class Ensemble(TranslationModel):
    """p(y_t | y_1 ... y_(t-1), source) = 1/M sum_m p_m(y_t | y_1 ... y_(t-1), source).

    The mean of the models' probabilities, word by word; the models may be of different kinds, since
    all of them keep the one protocol. Sutskever et al. 2014 (arXiv 1409.3215), section 3.6, decode
    with an ensemble; that the probabilities are averaged, and not their logarithms, lets one model
    propose what another does not see.

    Args:
        models: at least one; they read and write the same vocabularies.

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

    @property
    def longest(self) -> int | None:
        """The smallest `longest` of the models."""
        return min((m.longest for m in self.each() if m.longest is not None), default=None)

    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> EnsembleEncoded:
        return EnsembleEncoded([model.encode(source, lengths) for model in self.each()])

    def start(self, encoded: Encoded) -> EnsembleState:
        encoded = own(EnsembleEncoded, encoded)
        models = zip(self.each(), encoded.each, strict=True)
        return EnsembleState([model.start(source) for model, source in models])

    def advance(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], EnsembleState]:
        before = own(EnsembleState, state).each
        steps = [m.step(words, each) for m, each in zip(self.each(), before, strict=True)]
        return mean_log([logits for logits, _ in steps]), EnsembleState(
            [after for _, after in steps]
        )

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """The mean log-probabilities; the models' own hidden states have no mean."""
        return mean_log([model(source, lengths, target) for model in self.each()])

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        return hidden

    def looks(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Looks:
        """Every look of every model, its number before the name: "0.decoder.2.cross"."""
        return {
            f"{number}.{name}": look
            for number, model in enumerate(self.each())
            for name, look in model.looks(source, lengths, target).items()
        }

    def each(self) -> list[TranslationModel]:
        """The models."""
        return [model for model in self.models if isinstance(model, TranslationModel)]


class EnsembleEngine(SearchEngine):
    """Runs each model of an ensemble by an engine of its own."""

    def __init__(self, model: Ensemble, engines: Sequence[SearchEngine]) -> None:
        self.model, self.engines = model, engines
        self.name = " + ".join(engine.name for engine in engines)
        self.reason = "; ".join(dict.fromkeys(each.reason for each in engines if each.reason))
        self.loops = all(engine.loops for engine in engines)

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> LayersState:
        return LayersState(EnsembleState([each.begin(source, lengths) for each in self.engines]))

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], LayersState]:
        state = own(LayersState, state)
        before = zip(self.engines, own(EnsembleState, state.inner).each, strict=True)
        steps = [engine.step(words, each) for engine, each in before]
        logits = mean_log([logits for logits, _ in steps])
        if state.lists is not None and state.sentences is not None:
            logits = gather_listed(logits, state.lists, state.sentences)
        return logits, replace(state, inner=EnsembleState([after for _, after in steps]))


def choose_engine(
    model: TranslationModel, *, rounded: bool = False, avoid_loops: str = ""
) -> SearchEngine:
    """`engines.choose` for a model, or for each model of an ensemble. int8 search is for a single model."""
    if isinstance(model, Ensemble) and not rounded:
        engines = [choose(each, avoid_loops=avoid_loops) for each in model.each()]
        return EnsembleEngine(model, engines)
    return choose(model, rounded=rounded, avoid_loops=avoid_loops)


def mean_log(
    logits: Sequence[Float[Tensor, "*batch vocabulary"]],
) -> Float[Tensor, "*batch vocabulary"]:
    """log of the mean of softmax(logits), in float32: log 1/M sum_m exp log p_m.

    >>> mean_log([torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, -1e9]])]).exp()
    tensor([[0.7500, 0.2500]])
    """
    flat = [each.reshape(-1, each.shape[-1]) for each in logits]
    together = torch.stack([log_probabilities(each) for each in flat]).logsumexp(0)
    return (together - math.log(len(logits))).view(logits[0].shape)
