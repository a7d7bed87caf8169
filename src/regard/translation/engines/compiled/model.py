"""A Transformer as the compiled loops read it, and its encoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.heads import MultiHeadAttention
from regard.attention.positions import sinusoidal
from regard.translation.engines.compiled import forward_loops as loops
from regard.translation.engines.compiled import products, row_loops
from regard.translation.models.transformer import DecoderLayer, EncoderLayer, Transformer

Array = np.ndarray[Any, Any]
_LINE = 16  # numbers: each part begins on a cache line
_ACTIVATIONS = {"relu": row_loops.RELU, "gelu": row_loops.GELU, "silu": row_loops.SILU}


class CompiledModel:
    """The same function as the model's own layers, in the loops of `forward_loops`."""

    def __init__(self, model: Transformer, *, rounded: bool = False) -> None:
        settings = model.settings
        self.width, self.heads, self.rounded = settings.width, settings.heads, rounded
        self.encoder = _Packing(rounded).side(model.encoder, model.encoder_norm, None)
        self.decoder = _Packing(rounded).side(model.decoder, model.decoder_norm, model.output)
        # Of rows that lie otherwise numba would compile all of it once more.
        self.reads = model.source_embedding.weight.detach().contiguous().numpy()
        self.writes = model.target_embedding.weight.detach().contiguous().numpy()
        # As lists of words read it, which take a row here and there.
        output, bias = model.output.weight.detach().contiguous().numpy(), model.output.bias
        self.output = (
            output,
            np.zeros(len(output), np.float32) if bias is None else bias.detach().numpy(),
        )
        factor = settings.width**0.5 if settings.scale_embedding else 1.0
        self.shape = loops.Shape(
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

    def workspace(self, rows: int, positions: int) -> loops.Workspace:
        """Buffers for so many rows that read so many positions. torch starts each on a cache line."""

        def numbers(*shape: int) -> Array:
            made: Array = torch.empty(shape).numpy()
            return made

        groups = -(-max(self.width, self.shape.inner) // products.FOUR)
        return loops.Workspace(
            x=numbers(rows * self.width),
            h=numbers(rows * self.width),
            joined=numbers(rows * 3 * self.width),
            reading=numbers(rows * self.width),
            out=numbers(rows * self.width),
            inner=numbers(rows * self.shape.inner),
            spare=numbers(products.ROWS * products.COLUMNS),
            scores=numbers(self.heads, positions),
            rounded=numbers(rows * groups).view(np.uint8) if self.rounded else None,
            factors=numbers(rows) if self.rounded else None,
        )

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Array, Array, Array]:
        """The encoder over the words of all sentences, one sentence after the other.

        Returns:
            Each decoder layer's keys and values of the words, and where the words of each sentence begin and end.
        """
        counts = lengths.numpy().astype(np.int64, copy=False)
        longest = int(counts.max())
        if longest > source.shape[1]:
            raise ValueError(f"a length of {longest} in a batch of {source.shape[1]} positions")
        last = np.cumsum(counts)
        first = last - counts
        words = ids(source[torch.arange(source.shape[1]) < lengths[:, None]], self.reads)
        starts, ends = np.repeat(first, counts), np.repeat(last, counts)
        parts = tuple(self.shape), tuple(self.workspace(len(words), longest))
        embedding = self.reads, self.positions(longest)
        places = np.arange(len(words)) - starts
        loops.encode(words, places, starts, ends, embedding, tuple(self.encoder), parts)
        size = 2 * self.width * len(words)
        sources: Array = torch.empty(len(self.decoder.places), size).numpy()
        loops.project(len(words), tuple(self.decoder), parts, sources)
        return sources, first, last


def ids(words: Tensor, table: Array) -> Array:
    """The ids of words, each a row of a table: compiled loops would read whatever lies beyond it."""
    found: Array = words.numpy().astype(np.int64, copy=False)
    if len(found) and not 0 <= found.min() <= found.max() < len(table):
        raise IndexError(
            f"word ids from {found.min()} to {found.max()}, this model knows 0 to {len(table) - 1}"
        )
    return found


class PackedWeights(NamedTuple):
    """All weights of one side of a Transformer in one flat array.

    Attributes:
        places: of each layer's weights, by `forward_loops.PLACES`.
        end: of those behind the last layer.
    """

    weights: Array
    places: Array
    end: Array


class _Packing:
    """Puts weights one after the other."""

    def __init__(self, rounded: bool) -> None:
        self._packed = products.packed_rounded if rounded else products.packed
        self._parts: list[Tensor] = []
        self._size = 0

    def side(
        self, layers: nn.ModuleList, last: nn.Module, output: nn.Linear | None
    ) -> PackedWeights:
        """The weights of the layers, of the norm behind them, if it is one, and of an output layer."""
        places: Array = np.full((len(layers), loops.PLACES), -1, np.int64)
        end: Array = np.full(3, -1, np.int64)
        for own, layer in zip(places, layers, strict=True):
            if not isinstance(layer, EncoderLayer | DecoderLayer):
                raise TypeError(f"a {type(layer).__name__} is no layer of a Transformer")
            self._layer(own, layer)
        if isinstance(last, nn.LayerNorm):
            end[loops.LAST_NORM] = self._norm(last)
        if output is not None:
            self._product(end, loops.LOGITS, output)
        # torch starts its memory on a cache line.
        return PackedWeights(torch.cat([*self._parts, torch.zeros(1)]).numpy(), places, end)

    def _layer(self, at: Array, layer: EncoderLayer | DecoderLayer) -> None:
        self._product(at, loops.JOINED, *_inputs(layer.self_attention))
        self._product(at, loops.OUTPUT, layer.self_attention.output_projection, bias=True)
        self._product(at, loops.INNER, layer.feed_forward.inner, bias=True)
        self._product(at, loops.OUTER, layer.feed_forward.outer, bias=True)
        at[loops.SELF_NORM] = self._norm(layer.self_residual.norm)
        at[loops.FORWARD_NORM] = self._norm(layer.feed_forward_residual.norm)
        if isinstance(layer, DecoderLayer):
            query, *source = _inputs(layer.cross_attention)
            self._product(at, loops.QUERY, query)
            self._product(at, loops.SOURCE, *source)
            self._product(at, loops.CROSS, layer.cross_attention.output_projection, bias=True)
            at[loops.CROSS_NORM] = self._norm(layer.cross_residual.norm)

    def _product(self, at: Array, place: int, *layers: nn.Linear, bias: bool = False) -> None:
        """Layers of one input, side by side, and their bias, which may be left out where `bias` is False."""
        at[place] = self._put(self._packed(torch.cat([layer.weight.detach() for layer in layers])))
        if bias or any(layer.bias is not None for layer in layers):
            each = [
                layer.weight.new_zeros(layer.out_features)
                if layer.bias is None
                else layer.bias.detach()
                for layer in layers
            ]
            at[place + 1] = self._put(torch.cat(each))

    def _norm(self, norm: nn.LayerNorm) -> int:
        weight, bias = norm.weight.detach(), norm.bias.detach()
        return self._put(torch.cat([weight, bias, weight.new_tensor([norm.eps])]))

    def _put(self, part: Tensor) -> int:
        at, gap = self._size, -len(part) % _LINE
        self._parts += [part, part.new_zeros(gap)]
        self._size += len(part) + gap
        return at


def _inputs(attention: MultiHeadAttention) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return attention.query_projection, attention.key_projection, attention.value_projection
