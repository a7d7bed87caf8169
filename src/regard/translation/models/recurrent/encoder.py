"""The recurrent encoder: sentences in, one state a word out."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .cells import CellState
from .settings import RecurrentConfiguration

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """A GRU or LSTM over a packed batch, from left to right and, where asked, from right to left.

    ``h_j = [forward_j ; backward_j]`` (arXiv 1409.0473, section 3.2). Packing leaves the padding
    out, so that the backward direction begins at each sentence's own last word.
    """

    def __init__(self, settings: RecurrentConfiguration) -> None:
        super().__init__()
        kind = nn.GRU if settings.cell == "gru" else nn.LSTM
        self.recurrence = kind(
            settings.embedding_width,
            settings.encoder_width,
            num_layers=settings.encoder_layers,
            bidirectional=settings.bidirectional,
            batch_first=True,
            dropout=settings.dropout if settings.encoder_layers > 1 else 0.0,
        )
        self.layers = settings.encoder_layers
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal from state to state, Glorot's uniform from the input, biases 0 (forget: 1)."""
        gates = 3 if isinstance(self.recurrence, nn.GRU) else 4
        width = self.recurrence.hidden_size
        for name, parameter in self.recurrence.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.chunk(gates):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                for gate in parameter.chunk(gates):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(parameter)
                if gates == 4 and name.startswith("bias_ih"):
                    nn.init.ones_(parameter[width : 2 * width])

    def forward(
        self, words: Float[Tensor, "batch source d_word"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source d_memory"], tuple[CellState, ...]]:
        """The states of every position (0 on padding) and, a layer, the last state of each sentence.

        A sentence of length 0 has no state to give: all of its own are 0.
        """
        some = lengths.clamp(min=1).cpu()
        packed = pack_padded_sequence(words, some, batch_first=True, enforce_sorted=False)
        outputs, last = self.recurrence(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=words.shape[1])
        read = (lengths > 0).to(states)[:, None]
        last = last if isinstance(last, tuple) else (last,)
        # (layers x directions, batch, width) -> a layer: (batch, directions x width)
        layered = [part.unflatten(0, (self.layers, -1)).transpose(1, 2).flatten(2) for part in last]
        return states * read[:, :, None], tuple(
            tuple(part[layer] * read for part in layered) for layer in range(self.layers)
        )


def readable(lengths: Int[Tensor, " batch"], longest: int) -> Tensor:
    """(batch, source) True where a sentence has a word."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]
