"""From the encoder's last states to the decoder's first."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.translation.models.recurrent.cells import CellState
from regard.translation.models.recurrent.linear import new_linear
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["Bridge"]


class Bridge(nn.Module):
    """The decoder's first state, a layer.

    "linear": ``s_0 = tanh(W h + b)`` where h is the last state of the encoder's top layer, both
    directions side by side (arXiv 1409.0473, appendix A.2.2, reads the backward one alone); an
    LSTM's memory is projected alike, without the tanh. "copy": the encoder's state of the same
    layer (arXiv 1409.3215). "zero": nothing.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__()
        self.kind = settings.bridge
        self.layers, self.width = settings.decoder_layers, settings.decoder_width
        if self.kind == "linear":
            self.state = self._projections(settings)
            self.memory = self._projections(settings) if settings.cell == "lstm" else None

    @staticmethod
    def _projections(settings: RecurrentSettings) -> nn.ModuleList:
        return nn.ModuleList(
            new_linear(settings.memory_width, settings.decoder_width)
            for _ in range(settings.decoder_layers)
        )

    def forward(self, last: tuple[CellState, ...]) -> tuple[CellState, ...]:
        """`last` holds, a layer of the encoder, its last state (and memory)."""
        if self.kind == "copy":
            return last
        if self.kind == "zero":
            nothing = tuple(part.new_zeros(part.shape[0], self.width) for part in last[-1])
            return (nothing,) * self.layers
        states: list[Tensor] = [torch.tanh(project(last[-1][0])) for project in self.state]
        if self.memory is None:
            return tuple((state,) for state in states)
        memories: list[Tensor] = [project(last[-1][1]) for project in self.memory]
        return tuple(zip(states, memories, strict=True))
