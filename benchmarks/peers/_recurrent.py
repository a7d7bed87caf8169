"""GRU and additive attention: a plain PyTorch loop, and what JoeyNMT is to build."""

from __future__ import annotations

from typing import Any

import torch
from _steps import DROPOUT, WIDTH, Step, loop
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.translation.text.batches import Batch
from regard.translation.text.tokenizer import PAD

# Theirs reads the source after each step and feeds what it read to the next one.
JOEYNMT: dict[str, Any] = {
    "type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": WIDTH,
    "bidirectional": True, "attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True,
    "dropout": DROPOUT, "hidden_dropout": DROPOUT,
    "embeddings": {"embedding_dim": WIDTH, "scale": False, "dropout": DROPOUT},
}  # fmt: skip
# Ours as the paper has it, and in JoeyNMT's order.
OURS = (
    *(f"model.{part}_width={WIDTH}" for part in ("embedding", "encoder", "decoder", "attention")),
    *(f"model.dropout={DROPOUT}", "training.batch_tokens=2048"),
)
AFTER = (*OURS, "model.attention=luong", "model.input_feeding=true")


class Plain(nn.Module):
    """Bahdanau et al. (arXiv 1409.0473): read the source, step, and say; one embedding for all."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * WIDTH, WIDTH)
        self.key, self.query = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.energy = nn.Linear(WIDTH, 1, bias=False)
        self.cell = nn.GRUCell(3 * WIDTH, WIDTH)
        self.readout = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, batch: Batch) -> Tensor:
        packed = pack_padded_sequence(
            self.dropout(self.embedding(batch.source)),
            batch.source_lengths,
            batch_first=True,
            enforce_sorted=False,
        )
        states, last = self.encoder(packed)
        memory = self.dropout(pad_packed_sequence(states, batch_first=True)[0])
        keys, readable = self.key(memory), (batch.source != PAD)[:, : memory.shape[1]]
        state = torch.tanh(self.bridge(last.transpose(0, 1).flatten(1)))
        words, read = self.dropout(self.embedding(batch.target_in)), []
        for word in words.unbind(1):
            scores = self.energy(torch.tanh(self.query(state)[:, None] + keys))[..., 0]
            weights = scores.masked_fill(~readable, -torch.inf).softmax(-1)
            context = (weights[:, None] @ memory)[:, 0]
            state = self.cell(torch.cat([word, context], 1), state)
            read.append(torch.cat([state, context, word], 1))
        hidden = self.dropout(torch.tanh(self.readout(torch.stack(read, 1))))
        return hidden @ self.embedding.weight.t()


def plain(vocabulary: int) -> Step:
    model = Plain(vocabulary).train()
    return loop(model, model)
