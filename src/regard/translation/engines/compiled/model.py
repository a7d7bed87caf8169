"""The weights of a Transformer as the compiled loops read them, and its encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.attention.positions import sinusoidal
from regard.translation.engines.compiled import forward_loops, products, row_loops
from regard.translation.engines.compiled.weights import Array, PackedWeights

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer

_ACTIVATIONS = {"relu": row_loops.RELU, "gelu": row_loops.GELU, "silu": row_loops.SILU}


@dataclass(frozen=True)
class CompiledEncoded:
    """The encoder's states of every real word, flat, and where each sentence's begin and end."""

    states: Array
    words: int
    first: Array
    last: Array

    @property
    def longest(self) -> int:
        return int((self.last - self.first).max())


class CompiledModel:
    """The same function as the model's own layers, in the loops of `forward_loops`."""

    def __init__(self, model: Transformer, *, rounded: bool = False) -> None:
        settings = model.settings
        self.width, self.heads, self.rounded = settings.width, settings.heads, rounded
        self.encoder = PackedWeights(model.encoder, model.encoder_norm, None, rounded)
        self.decoder = PackedWeights(model.decoder, model.decoder_norm, model.output, rounded)
        # Of rows that lie otherwise numba would compile all of it once more.
        self.reads = model.source_embedding.weight.detach().contiguous().numpy()
        self.writes = model.target_embedding.weight.detach().contiguous().numpy()
        # As lists of words read it, which take a row here and there.
        self.output = model.output.weight.detach().contiguous().numpy()
        bias = model.output.bias
        self.output_bias = (
            np.zeros(len(self.output), np.float32) if bias is None else bias.detach().numpy()
        )
        factor = settings.width**0.5 if settings.scale_embedding else 1.0
        self.shape = forward_loops.Shape(
            width=settings.width,
            inner=settings.feed_forward,
            heads=settings.heads,
            vocabulary=model.output.out_features,
            before=settings.norm == "pre",
            kind=_ACTIVATIONS[settings.activation],
            scale=np.float32((settings.width // settings.heads) ** -0.5),
            factor=np.float32(factor),
        )
        learned = settings.positions == "learned"
        self._learned = (model.positions.detach() * factor).numpy() if learned else None
        self._numbered = sinusoidal(64, self.width).float().numpy()

    def positions(self, count: int) -> Array:
        """The vectors of at least so many positions."""
        if self._learned is not None:
            if count > len(self._learned):
                raise ValueError(
                    f"a sentence of {count} positions, this model has learned {len(self._learned)}"
                )
            return self._learned
        numbered = self._numbered
        if count > len(numbered):
            # Another thread may put a shorter one in its place meanwhile.
            numbered = self._numbered = sinusoidal(2 * count, self.width).float().numpy()
        return numbered

    def workspace(self, count: int, positions: int) -> forward_loops.Workspace:
        """Buffers for so many rows that read so many positions."""
        width = self.width
        return forward_loops.Workspace(
            x=_flat(count * width),
            h=_flat(count * width),
            joined=_flat(count * 3 * width),
            reading=_flat(count * width),
            out=_flat(count * width),
            inner=_flat(count * self.shape.inner),
            spare=_flat(products.ROWS * products.COLUMNS),
            room=_flat(self.heads * positions).reshape(self.heads, positions),
            rounded=self._bytes(count) if self.rounded else None,
            factors=_flat(count) if self.rounded else None,
        )

    def _bytes(self, count: int) -> Array:
        groups = -(-max(self.width, self.shape.inner) // products.FOUR)
        room: Array = torch.empty(count * groups * products.FOUR, dtype=torch.uint8).numpy()
        return room

    def encode(self, source: Tensor, lengths: Tensor) -> CompiledEncoded:
        """The encoder over the words of all sentences, one sentence after the other."""
        counts = lengths.numpy().astype(np.int64, copy=False)
        if counts.max() > source.shape[1]:
            raise ValueError(
                f"a length of {counts.max()} in a batch of {source.shape[1]} positions"
            )
        last = np.cumsum(counts)
        first = last - counts
        words = ids(source[torch.arange(source.shape[1]) < lengths[:, None]], self.reads)
        starts, ends = np.repeat(first, counts), np.repeat(last, counts)
        longest = int(counts.max())
        workspace = self.workspace(len(words), longest)
        forward_loops.encode(
            *(words, np.arange(len(words)) - starts, starts, ends),
            *(self.reads, self.positions(longest)),
            *(self.encoder.weights, self.encoder.places, self.encoder.end),
            *(tuple(self.shape), tuple(workspace)),
        )
        return CompiledEncoded(workspace.h, len(words), first, last)

    def sources(self, encoded: CompiledEncoded) -> Array:
        """Each decoder layer's keys and values of the source, projected once."""
        count = 2 * self.width * encoded.words
        projected = torch.empty(len(self.decoder.places), count).numpy()
        packing = self.decoder
        forward_loops.project(
            encoded.states,
            encoded.words,
            packing.weights,
            packing.places,
            self.width,
            tuple(self.workspace(encoded.words, 1)),
            projected,
        )
        return projected


def ids(words: Tensor, table: Array) -> Array:
    """The ids of words, each a row of a table: compiled loops would read whatever lies beyond it."""
    found: Array = words.numpy().astype(np.int64, copy=False)
    if len(found) and not 0 <= found.min() <= found.max() < len(table):
        raise IndexError(
            f"word ids from {found.min()} to {found.max()}, this model knows 0 to {len(table) - 1}"
        )
    return found


def _flat(numbers: int) -> Array:
    """A buffer of this many numbers. It comes from torch, which starts it on a cache line."""
    room: Array = torch.empty(numbers).numpy()
    return room
