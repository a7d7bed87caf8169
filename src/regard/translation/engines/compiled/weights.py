"""All weights of one side of a Transformer in one flat array."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.heads import MultiHeadAttention
from regard.translation.engines.compiled import forward_loops as loops
from regard.translation.engines.compiled import products
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer

Array = np.ndarray[Any, Any]
_LINE = 16  # numbers: each weight begins on a cache line


# The array, the places in it of each layer's weights (`forward_loops.PLACES`), and of those behind the last layer.
PackedWeights = tuple[Array, Array, Array]


def bias_of(layer: nn.Linear) -> Tensor:
    """Zeros where the layer has none."""
    weight, bias = layer.weight, layer.bias
    return weight.new_zeros(len(weight)) if bias is None else bias.detach()


class Packing:
    """Puts weights one after the other."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._size = 0

    def side(
        self, layers: nn.ModuleList, final: nn.Module, output: nn.Linear | None
    ) -> PackedWeights:
        """The weights of the layers, of the norm behind them, if it is one, and of an output layer."""
        places: Array = np.full((len(layers), loops.PLACES), -1, np.int64)
        end: Array = np.full(3, -1, np.int64)
        for at, layer in zip(places, layers, strict=True):
            if not isinstance(layer, EncoderLayer | DecoderLayer):
                raise TypeError(f"a {type(layer).__name__} is no layer of a Transformer")
            self._layer(at, layer)
        if isinstance(final, nn.LayerNorm):
            end[loops.LAST_NORM] = self._norm(final)
        if output is not None:
            self._product(end, loops.LOGITS, output)
        # torch starts its memory on a cache line.
        return torch.cat([*self._tensors, torch.zeros(1)]).numpy(), places, end

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
        at[place] = self._put(
            products.packed(torch.cat([layer.weight.detach() for layer in layers]))
        )
        if bias or any(layer.bias is not None for layer in layers):
            at[place + 1] = self._put(torch.cat([bias_of(layer) for layer in layers]))

    def _norm(self, norm: nn.LayerNorm) -> int:
        weight, bias = norm.weight.detach(), norm.bias.detach()
        return self._put(torch.cat([weight, bias, weight.new_tensor([norm.eps])]))

    def _put(self, tensor: Tensor) -> int:
        at, gap = self._size, -len(tensor) % _LINE
        self._tensors += [tensor, tensor.new_zeros(gap)]
        self._size += len(tensor) + gap
        return at


def _inputs(attention: MultiHeadAttention) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return attention.query_projection, attention.key_projection, attention.value_projection
