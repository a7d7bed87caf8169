"""Small models, and one batch of three sentences of unequal lengths."""

from __future__ import annotations

from typing import Any

import torch

from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.settings.recurrent import RecurrentSettings

SOURCE = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0], [8, 9, 3, 0]])
LENGTHS = torch.tensor([4, 2, 3])
TARGET = torch.tensor([[2, 5, 6], [2, 7, 8], [2, 9, 4]])

# One change each from GRU + Bahdanau, so that every part meets the equations.
KINDS: dict[str, dict[str, Any]] = {
    "bahdanau": {},
    "bahdanau lstm": {"cell": "lstm"},
    "bahdanau two layers": {"encoder_layers": 2, "decoder_layers": 2},
    "bahdanau three-way": {"tied": "three_way"},
    "bahdanau four heads": {"heads": 4},
    "bahdanau two dot heads": {"heads": 2, "score": "scaled_dot", "cell": "lstm"},
    "bahdanau two general heads": {"heads": 2, "score": "general", "bridge": "zero"},
    "bahdanau cosine": {"score": "cosine", "bridge": "copy"},
    "bahdanau sparsemax": {"normaliser": "sparsemax", "positions": "sinusoidal"},
    "luong two sparsemax heads": {"attention": "luong", "heads": 2, "normaliser": "sparsemax"},
    "luong dot": {"attention": "luong", "score": "dot"},
    "luong general": {"attention": "luong", "score": "general", "bidirectional": False},
    "luong concat": {"attention": "luong", "score": "concat", "tied": "target"},
    "luong scaled lstm": {"attention": "luong", "score": "scaled_dot", "cell": "lstm"},
    "luong unfed": {"attention": "luong", "score": "general", "input_feeding": False},
    "luong unfed two heads": {"attention": "luong", "heads": 2, "input_feeding": False},
    "fixed vector": {"attention": "none"},
    "fixed vector lstm copy": {
        "attention": "none",
        "cell": "lstm",
        "bridge": "copy",
        "encoder_layers": 2,
        "decoder_layers": 2,
        "tied": "three_way",
    },
}


def small(**changes: Any) -> RecurrentModel:
    """A model in float64, evaluating, with biases that are not 0."""
    options: dict[str, Any] = {
        "embedding_width": 6,
        "encoder_width": 4,
        "decoder_width": 8,
        "attention_width": 5,
        "dropout": 0.0,
        "tied": "none",
    }
    options.update(changes)
    if not options.get("bidirectional", True):
        options["encoder_width"] = 8
    torch.manual_seed(0)
    model = RecurrentModel(RecurrentSettings(**options), 12, 12).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.5, 0.5)
            elif "embedding" in name:
                parameter.mul_(3.0)
    return model
