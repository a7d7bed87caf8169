"""A pass of the Transformer over words alone, with the same weights and the same mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.blocks import FeedForward, Residual
from regard.attention.heads import MultiHeadAttention
from regard.loops import availability as loops
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer
from regard.translation.models.transformer.packed.attention import attend
from regard.translation.models.transformer.packed.feed_forward import feed_forward
from regard.translation.models.transformer.packed.residual import add_and_norm
from regard.translation.models.transformer.packed.sentences import Sentences
from regard.translation.models.transformer.plain import is_plain

if TYPE_CHECKING:
    from regard.translation.models.transformer.model import Transformer

# Sentences beyond this keep the weights of all heads for the way back; other kernels do not.
LONGEST = 512


def serves(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> bool:
    """Whether this is the way to go: on a processor, in float32, for gradients, with nothing traced or hooked."""
    weight = model.output.weight
    return (
        loops.serve(weight, source, target)
        and weight.is_cpu
        and weight.dtype == torch.float32
        and torch.is_grad_enabled()
        and weight.requires_grad
        and min(source.numel(), target.numel()) > 0
        and bool((lengths > 0).all())  # a sentence without a word would have nothing to read
        and max(source.shape[1], target.shape[1]) <= LONGEST
        and not torch.is_autocast_enabled("cpu")
        and is_plain(model)
    )


def hidden(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    target: Int[Tensor, "batch target"],
    target_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "words width"]:
    """What the decoder holds after each word of `target`, without its padding."""
    asked, said = Sentences.of(source, source_lengths), Sentences.of(target, target_lengths)
    stream = _Stream(model, asked, model.source_embedding)
    for below in _encoders(model):
        stream.read(below.self_residual, below.self_attention, asked.starts)
        stream.feed(below.feed_forward_residual, below.feed_forward)
    memories = _memories(model, stream.end(model.encoder_norm))
    stream = _Stream(model, said, model.target_embedding)
    for layer, memory in zip(_decoders(model), memories, strict=True):
        stream.read(layer.self_residual, layer.self_attention, said.starts, causal=True)
        stream.look(layer.cross_residual, layer.cross_attention, said.starts, memory, asked.starts)
        stream.feed(layer.feed_forward_residual, layer.feed_forward)
    return stream.end(model.decoder_norm)


class _Stream:
    """The words on their way up. What a sublayer made is added when the next norm is known."""

    def __init__(self, model: Transformer, sentences: Sentences, embedding: nn.Embedding) -> None:
        self._rate = model.settings.dropout if model.training else 0.0
        self._before = model.settings.norm == "pre"
        self._x = model.embed(embedding, sentences.words, sentences.places)
        self._made: tuple[Tensor, Tensor | None] | None = None

    def read(
        self,
        residual: Residual,
        attention: MultiHeadAttention,
        starts: NDArray[np.int64],
        *,
        causal: bool = False,
    ) -> None:
        """Self-attention."""
        three = (attention.query_projection, attention.key_projection, attention.value_projection)
        x = _project(self._normed(residual), *three)
        reading = attend(x, x, starts, starts, attention.heads, causal=causal)
        self._keep(residual, *_output(attention, reading))

    def look(
        self,
        residual: Residual,
        attention: MultiHeadAttention,
        starts: NDArray[np.int64],
        memory: Tensor,
        answering: NDArray[np.int64],
    ) -> None:
        """Cross-attention."""
        query = _project(self._normed(residual), attention.query_projection)
        reading = attend(query, memory, starts, answering, attention.heads)
        self._keep(residual, *_output(attention, reading))

    def feed(self, residual: Residual, layer: FeedForward) -> None:
        """The feed-forward layer."""
        x = self._normed(residual)
        if layer.activation is F.relu:
            self._keep(residual, feed_forward(x, layer.inner, layer.outer), layer.outer.bias)
        else:
            inner = layer.activation(layer.inner(x))
            self._keep(residual, inner @ layer.outer.weight.t(), layer.outer.bias)

    def end(self, norm: nn.Module) -> Tensor:
        """The words after the last sublayer."""
        if isinstance(norm, nn.LayerNorm):
            return self._summed(norm)
        return self._x

    def _normed(self, residual: Residual) -> Tensor:
        return self._summed(residual.norm) if self._before else self._x

    def _summed(self, norm: nn.LayerNorm) -> Tensor:
        if self._made is None:
            normed: Tensor = norm(self._x)
            return normed
        made, self._made = self._made, None
        self._x, normed = add_and_norm(self._x, *made, self._rate, norm)
        return normed

    def _keep(self, residual: Residual, made: Tensor, bias: Tensor | None) -> None:
        self._made = made, bias
        if not self._before:
            self._x = self._summed(residual.norm)


def _project(x: Tensor, *projections: nn.Linear) -> Tensor:
    """Several projections as one product."""
    weights: list[Tensor] = [p.weight for p in projections]
    biases: list[Tensor] = [p.bias for p in projections]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return F.linear(x, weight, None if biases[0] is None else torch.cat(biases))


def _memories(model: Transformer, states: Tensor) -> list[Tensor]:
    """Keys and values of every decoder layer, projected together."""
    attentions = [layer.cross_attention for layer in _decoders(model)]
    if not attentions:
        return []
    both = [p for a in attentions for p in (a.key_projection, a.value_projection)]
    return list(_project(states, *both).chunk(len(attentions), -1))


def _output(attention: MultiHeadAttention, reading: Tensor) -> tuple[Tensor, Tensor | None]:
    projection = attention.output_projection
    return reading @ projection.weight.t(), projection.bias


def _encoders(model: Transformer) -> list[EncoderLayer]:
    return [layer for layer in model.encoder if isinstance(layer, EncoderLayer)]


def _decoders(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]
