"""How the decoder looks at the encoder's states."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .settings import RecurrentConfiguration
from .source import Source

__all__ = ["CrossAttention"]


class Additive(nn.Module):
    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(d_hidden, d_query))
        self.key_weight = nn.Parameter(torch.empty(d_hidden, d_key))
        self.weight = nn.Parameter(torch.empty(d_hidden))
        nn.init.xavier_uniform_(self.query_weight)
        nn.init.xavier_uniform_(self.key_weight)
        nn.init.uniform_(self.weight, -(d_hidden**-0.5), d_hidden**-0.5)


class CrossAttention(nn.Module):
    def __init__(self, settings: RecurrentConfiguration) -> None:
        super().__init__()
        self.score = Additive(
            settings.decoder_width, settings.memory_width, settings.attention_width
        )

    def prepare(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.score.key_weight)

    def forward(
        self, query: Float[Tensor, "batch d_query"], source: Source
    ) -> tuple[Float[Tensor, "batch d_memory"], Float[Tensor, "batch source"]]:
        """The context a query reads, and the weights it read with."""
        asked = nn.functional.linear(query, self.score.query_weight)
        scores = torch.tanh(source.prepared + asked[:, None]) @ self.score.weight
        weights = scores.masked_fill(~source.readable, -torch.inf).softmax(-1)
        weights = weights.masked_fill(~source.readable, 0.0)
        return torch.bmm(weights[:, None], source.states)[:, 0], weights
