"""All weights of one side of a Transformer in one flat array, and where each lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.heads import MultiHeadAttention
from regard.translation.engines.compiled import forward_loops, products
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer

Array = np.ndarray[Any, Any]
_LINE = 16  # numbers: each part begins on a cache line


class PackedWeights:
    """Parts put one after the other.

    Attributes:
        places: of each layer's weights, by `forward_loops.PLACES`.
        end: of those behind the last layer.
    """

    def __init__(
        self,
        layers: nn.ModuleList,
        last: nn.Module,
        output: nn.Linear | None,
        few_bits: bool = False,
    ) -> None:
        self._packed = products.packed_rounded if few_bits else products.packed
        self._parts: list[Tensor] = []
        self._size = 0
        self.places: Array = np.full((len(layers), forward_loops.PLACES), -1, np.int64)
        self.end: Array = np.full(3, -1, np.int64)
        for places, layer in zip(self.places, layers, strict=True):
            self._layer(places, layer)
        if isinstance(last, nn.LayerNorm):
            self.end[forward_loops.LAST_NORM] = self._norm(last)
        if output is not None:
            self.end[forward_loops.LOGITS : forward_loops.LOGITS_BIAS + 1] = self._product(output)
        # torch starts its memory on a cache line.
        self.weights: Array = torch.cat([*self._parts, torch.zeros(1)]).numpy()

    def _layer(self, places: Array, layer: nn.Module) -> None:
        if not isinstance(layer, EncoderLayer | DecoderLayer):
            raise TypeError(f"a {type(layer).__name__} is no layer of a Transformer")
        p, own = forward_loops, layer.self_attention
        places[p.JOINED : p.JOINED + 2] = self._product(
            own.query_projection, own.key_projection, own.value_projection
        )
        places[p.OUTPUT : p.OUTPUT + 2] = self._product(own.output_projection, bias=True)
        places[p.INNER : p.INNER + 2] = self._product(layer.feed_forward.inner, bias=True)
        places[p.OUTER : p.OUTER + 2] = self._product(layer.feed_forward.outer, bias=True)
        places[p.SELF_NORM] = self._norm(layer.self_residual.norm)
        places[p.FORWARD_NORM] = self._norm(layer.feed_forward_residual.norm)
        if isinstance(layer, DecoderLayer):
            self._cross(places, layer.cross_attention)
            places[p.CROSS_NORM] = self._norm(layer.cross_residual.norm)

    def _cross(self, places: Array, cross: MultiHeadAttention) -> None:
        p = forward_loops
        places[p.QUERY : p.QUERY + 2] = self._product(cross.query_projection)
        places[p.SOURCE : p.SOURCE + 2] = self._product(
            cross.key_projection, cross.value_projection
        )
        places[p.CROSS : p.CROSS + 2] = self._product(cross.output_projection, bias=True)

    def _product(self, *layers: nn.Linear, bias: bool = False) -> tuple[int, int]:
        """The places of layers of one input, side by side, and of their bias: -1 where it may be left out."""
        at = self._put(self._packed(torch.cat([layer.weight.detach() for layer in layers])))
        biases = [layer.bias for layer in layers]
        if not bias and all(each is None for each in biases):
            return at, -1
        each = [
            layer.weight.new_zeros(layer.out_features)
            if layer.bias is None
            else layer.bias.detach()
            for layer in layers
        ]
        return at, self._put(torch.cat(each))

    def _norm(self, norm: nn.LayerNorm) -> int:
        weight, bias = norm.weight.detach(), norm.bias.detach()
        return self._put(torch.cat([weight, bias, weight.new_tensor([norm.eps])]))

    def _put(self, part: Tensor) -> int:
        at, gap = self._size, -len(part) % _LINE
        self._parts += [part, part.new_zeros(gap)]
        self._size += len(part) + gap
        return at
