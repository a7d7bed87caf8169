"""A model whose weights a test chooses, over pieces of a tokenizer learnt from a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers
from regard.translation.text.tokenizer import Tokenizer

LINES = [f"{a} {b} {c}" for a in "uno dos tres".split() for b in "rojo azul".split() for c in "xyz"]

# (layer, rows, columns) -> weights of (heads, rows, columns), end of the source included
Weights = Callable[[int, int, int], Tensor]


@dataclass
class Seen:
    inputs: Tensor

    def weights(self) -> Tensor:
        return self.inputs


class Scripted(nn.Module):
    """Answers `looks` alone."""

    longest: int | None = None
    longest_source = TranslationModel.longest_source

    def __init__(self, weights: Weights, layers: int = 2) -> None:
        super().__init__()
        self.anything = nn.Parameter(torch.zeros(1))
        self.script = weights
        self.layers = layers
        self.calls = 0

    def looks(
        self, source: Tensor, lengths: Tensor, target: Tensor, only: str | None = None
    ) -> dict[str, Seen]:
        self.calls += 1
        options = {"encoder.0.self": Seen(torch.empty(0))}
        for layer in range(self.layers):
            weights = self.script(layer, target.shape[1], source.shape[1])
            real = torch.arange(source.shape[1]) < lengths[:, None]
            options[f"decoder.{layer}.cross"] = Seen(weights[None] * real[:, None, None])
        return {name: look for name, look in options.items() if only in (None, name)}


def tokenizers() -> Tokenizers:
    """Each of uno, dos, tres, rojo and azul is one piece; other words are several."""
    tokenizer = Tokenizer.train(LINES, vocabulary_size=310, kind="bpe")
    assert all(len(tokenizer.encode(word)) == 1 for word in "uno dos tres rojo azul".split())
    return Tokenizers(tokenizer, tokenizer)


def ahead(layer: int, rows: int, columns: int) -> Tensor:
    """Head 0 looks at the piece of its own number in layer 0, at the first in layer 1; head 1 at the first."""
    place = torch.arange(rows).clamp(max=columns - 1)
    at_place, at_first = (
        nn.functional.one_hot(each, columns).float() for each in (place, 0 * place)
    )
    return torch.stack([0.9 * (at_place if layer == 0 else at_first), at_first])
