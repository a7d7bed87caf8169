"""One step of a recurrence, with what does not depend on the state left to the caller."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .settings import CellName

__all__ = ["CellState", "GRUCell", "LSTMCell", "new_cell"]

CellState = tuple[Tensor, ...]  # (state,) of a GRU, (state, memory) of an LSTM; each (batch, width)


class Cell(Protocol):
    gates: int

    def project(self, inputs: Tensor) -> Tensor: ...

    def __call__(self, projected: Tensor, state: CellState, feed: Tensor | None) -> CellState: ...


class _GatedCell(nn.Module):
    """The parameters of a cell: gates from the input, from the state and, where `d_feed` is not 0,
    from what the decoder feeds itself (the context, or the attentional vector)."""

    gates: int

    def __init__(self, d_input: int, d_state: int, d_feed: int = 0) -> None:
        super().__init__()
        self.input_projection = nn.Linear(d_input, self.gates * d_state)
        self.state_projection = nn.Linear(d_state, self.gates * d_state)
        self.feed_projection = (
            nn.Linear(d_feed, self.gates * d_state, bias=False) if d_feed else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal from state to state, Glorot's uniform from elsewhere, biases 0."""
        for gate in self.state_projection.weight.chunk(self.gates):
            nn.init.orthogonal_(gate)
        for projection in (self.input_projection, self.feed_projection):
            if projection is not None:
                bound = math.sqrt(6.0 / (sum(projection.weight.shape) / self.gates * 2))
                nn.init.uniform_(projection.weight, -bound, bound)
        nn.init.zeros_(self.input_projection.bias)
        nn.init.zeros_(self.state_projection.bias)

    def project(self, inputs: Float[Tensor, "*batch d_input"]) -> Float[Tensor, "*batch gates"]:
        """The part of the gates that comes from the input: for all steps at once."""
        projected: Tensor = self.input_projection(inputs)
        return projected

    def _fed(self, projected: Tensor, feed: Tensor | None) -> Tensor:
        if self.feed_projection is None or feed is None:
            return projected
        return projected + self.feed_projection(feed)


class GRUCell(_GatedCell):
    """Gated recurrent unit, its reset gate after the product, as in torch.nn.GRU.

    ``r, z = sigmoid(x + U s)``, ``n = tanh(x_n + r * (U_n s + b_n))``, ``s' = (1 - z) n + z s``

    Cho et al. (arXiv 1406.1078) reset the state before the product; after it, one product serves
    all three gates.
    """

    gates = 3

    def forward(
        self,
        projected: Float[Tensor, "batch gates"],
        state: CellState,
        feed: Float[Tensor, "batch d_feed"] | None = None,
    ) -> CellState:
        """The state after one step."""
        (before,) = state
        width = before.shape[-1]
        inner = self._fed(projected, feed)
        outer = self.state_projection(before)
        switches = torch.sigmoid(inner[..., : 2 * width] + outer[..., : 2 * width])
        reset, keep = switches.chunk(2, dim=-1)
        candidate = torch.tanh(torch.addcmul(inner[..., 2 * width :], reset, outer[..., 2 * width :]))
        return (candidate + keep * (before - candidate),)


class LSTMCell(_GatedCell):
    """Long short-term memory, gates in the order of torch.nn.LSTM: input, forget, candidate, output.

    ``c' = f c + i tanh(g)``, ``s' = o tanh(c')``, with ``i, f, o`` through a sigmoid.
    """

    gates = 4

    def reset_parameters(self) -> None:
        """As elsewhere, but gates begin by remembering: the forget bias is 1."""
        super().reset_parameters()
        width = self.state_projection.in_features
        nn.init.ones_(self.input_projection.bias[width : 2 * width])

    def forward(
        self,
        projected: Float[Tensor, "batch gates"],
        state: CellState,
        feed: Float[Tensor, "batch d_feed"] | None = None,
    ) -> CellState:
        """The state and the memory after one step."""
        before, memory = state
        width = before.shape[-1]
        inner = self._fed(projected, feed) + self.state_projection(before)
        enter, forget = torch.sigmoid(inner[..., : 2 * width]).chunk(2, dim=-1)
        candidate = torch.tanh(inner[..., 2 * width : 3 * width])
        leave = torch.sigmoid(inner[..., 3 * width :])
        memory = forget * memory + enter * candidate
        return leave * torch.tanh(memory), memory


def new_cell(name: CellName, d_input: int, d_state: int, d_feed: int = 0) -> GRUCell | LSTMCell:
    """A cell by its name."""
    return (GRUCell if name == "gru" else LSTMCell)(d_input, d_state, d_feed)
