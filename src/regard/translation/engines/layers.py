"""The engine of every model: its own layers, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.translation.engines import availability
from regard.translation.engines.hooks import hooked
from regard.translation.engines.listed import gather_listed, listed_logits
from regard.translation.engines.protocol import SearchEngine
from regard.translation.models.protocol import State, TranslationModel, own


@dataclass
class LayersState:
    """The model's own state, and the words that each row may continue with (None: all)."""

    inner: State
    lists: Int[Tensor, "sentences listed"] | None = None
    sentences: Int[Tensor, " rows"] | None = None

    def select(self, rows: Int[Tensor, " kept"]) -> LayersState:
        sentences = None if self.sentences is None else self.sentences[rows]
        return LayersState(self.inner.select(rows), self.lists, sentences)

    def narrow(
        self, lists: Int[Tensor, "sentences listed"], sentences: Int[Tensor, " rows"]
    ) -> None:
        self.lists, self.sentences = lists, sentences


class LayersEngine(SearchEngine):
    """Calls the model's layers. It serves all models, devices and precisions, and calls hooks.

    Args:
        reason: why compiled search was not chosen.
        loops: whether compiled loops may serve the search's own steps; None where the device decides.
    """

    name = "layers"

    def __init__(
        self, model: TranslationModel, *, reason: str = "", loops: bool | None = None
    ) -> None:
        self.model, self.reason = model, reason
        output = model.projection
        if loops is None:
            weight = next(model.parameters(), torch.empty(0))
            loops = availability.why_not(weight.device) is None
        self.loops = loops
        plain = type(output) is nn.Linear and not hooked(output)
        self._listed = output if plain and loops else None

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> LayersState:
        return LayersState(self.model.begin(source, lengths))

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], LayersState]:
        state = own(LayersState, state)
        if state.lists is None or state.sentences is None:
            logits, inner = self.model.step(words, state.inner)
            return logits, replace(state, inner=inner)
        hidden, inner = self.model.advance(words, state.inner)
        output = self._listed
        if output is not None and output.weight.dtype == hidden.dtype == torch.float32:
            logits = listed_logits(output, hidden, state.lists, state.sentences)
        else:
            logits = gather_listed(self.model.logits(hidden), state.lists, state.sentences)
        return logits, replace(state, inner=inner)
