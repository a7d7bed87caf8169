"""One step of a recurrence, with what does not depend on the state left to the caller."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.translation.settings.recurrent import CellName

CellState = tuple[Tensor, ...]  # (state,) of a GRU, (state, memory) of an LSTM; each (batch, width)


class Cell(nn.Module, ABC):
    """Gates from the input, from the state and from what a decoder feeds itself.

    Args:
        d_input: Width of the input, the same for all steps and projected for all of them at once.
        d_feed: Width of what only the step before knows (the context, or the attentional vector);
            0 where there is nothing of the kind.
    """

    gates: ClassVar[int]
    tensors: ClassVar[int]

    def __init__(self, d_input: int, d_state: int, d_feed: int = 0) -> None:
        super().__init__()
        self.d_state = d_state
        self.input_projection = nn.Linear(d_input, self.gates * d_state)
        self.state_projection = nn.Linear(d_state, self.gates * d_state)
        self.feed_projection = (
            nn.Linear(d_feed, self.gates * d_state, bias=False) if d_feed else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal from state to state, Glorot's uniform from elsewhere, biases 0; by gate."""
        for gate in self.state_projection.weight.chunk(self.gates):
            nn.init.orthogonal_(gate)
        for projection in (self.input_projection, self.feed_projection):
            if projection is not None:
                bound = math.sqrt(6.0 / (projection.in_features + self.d_state))
                nn.init.uniform_(projection.weight, -bound, bound)
        nn.init.zeros_(self.input_projection.bias)
        nn.init.zeros_(self.state_projection.bias)

    def nothing(self, like: Tensor, rows: int) -> CellState:
        return tuple(like.new_zeros(rows, self.d_state) for _ in range(self.tensors))

    def gates_without_state(self, projected: Tensor, feed: Tensor | None) -> Tensor:
        """The part that comes from the input and the feed."""
        if self.feed_projection is None or feed is None:
            return projected
        return torch.addmm(projected, feed, self.feed_projection.weight.t())

    @abstractmethod
    def forward(
        self,
        projected: Float[Tensor, "batch gates"],
        state: CellState,
        feed: Float[Tensor, "batch d_feed"] | None = None,
    ) -> CellState:
        """The state after one step."""


class GRUCell(Cell):
    """Gated recurrent unit, its reset gate after the product, as in torch.nn.GRU.

    ``r, z = sigmoid(W x + U s)``, ``n = tanh(W_n x + r * (U_n s + b_n))``,
    ``s' = (1 - z) * n + z * s``

    Cho et al. (arXiv 1406.1078) reset the state before the product; after it, one product serves
    all three gates.
    """

    gates, tensors = 3, 1

    def forward(self, projected: Tensor, state: CellState, feed: Tensor | None = None) -> CellState:
        (previous,) = state
        widths = [2 * self.d_state, self.d_state]
        switches_in, candidate_in = self.gates_without_state(projected, feed).split(widths, dim=-1)
        switches_back, candidate_back = self.state_projection(previous).split(widths, dim=-1)
        reset, keep = torch.sigmoid(switches_in + switches_back).chunk(2, dim=-1)
        candidate = torch.tanh(torch.addcmul(candidate_in, reset, candidate_back))
        return (torch.addcmul(candidate, keep, previous - candidate),)


class LSTMCell(Cell):
    """Long short-term memory, its gates in the order of torch.nn.LSTM: input, forget, cell, output.

    ``c' = f * c + i * tanh(g)``, ``s' = o * tanh(c')``; i, f, g and o are ``W x + U s + b``, all
    but g through a sigmoid (arXiv 1409.3215 leaves them to Graves, arXiv 1308.0850).
    """

    gates, tensors = 4, 2

    def reset_parameters(self) -> None:
        """As in any cell, but it begins by remembering: the forget gate's bias is 1."""
        super().reset_parameters()
        nn.init.ones_(self.input_projection.bias[self.d_state : 2 * self.d_state])

    def forward(self, projected: Tensor, state: CellState, feed: Tensor | None = None) -> CellState:
        previous, memory = state
        gates = self.gates_without_state(projected, feed) + self.state_projection(previous)
        switches, candidate, leave = gates.split(
            [2 * self.d_state, self.d_state, self.d_state], dim=-1
        )
        enter, forget = torch.sigmoid(switches).chunk(2, dim=-1)
        memory = torch.addcmul(forget * memory, enter, torch.tanh(candidate))
        return torch.sigmoid(leave) * torch.tanh(memory), memory


def new_cell(name: CellName, d_input: int, d_state: int, d_feed: int = 0) -> Cell:
    kind: type[Cell] = GRUCell if name == "gru" else LSTMCell
    return kind(d_input, d_state, d_feed)


def cells(modules: nn.ModuleList) -> list[Cell]:
    return [module for module in modules if isinstance(module, Cell)]


def new_linear(d_input: int, d_output: int, bias: bool = True) -> nn.Linear:
    """A linear map with Glorot's uniform weights and a bias of 0."""
    linear = nn.Linear(d_input, d_output, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
