"""Stacks of our layers without embeddings, as torch's TransformerEncoder, TransformerDecoder and Transformer."""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.translation.models.protocol import Looks, Watched
from regard.translation.models.transformer.layers import TransformerEncoded


class _Watched(nn.Module):
    """A module whose `forward` takes a `Watched` by this name and stores its looks there."""

    def looks(self, *inputs: Tensor | None) -> Looks:
        """The look of every layer by its name, "encoder.0.self", "decoder.0.cross" and so on; called like `forward`."""
        watched = Watched()
        self(*inputs, watched=watched)
        return watched.looks


class _Stack(_Watched):
    """Layers one after the other, and a norm at the end where there is one."""

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.Identity() if norm is None else norm

    def _run(self, x: Tensor, read: Any, watched: Watched | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, read, watched)
        output: Tensor = self.norm(x)
        return output


class EncoderStack(_Stack):
    """Encoder layers one after the other, and a norm at the end where there is one."""

    def forward(
        self,
        x: Float[Tensor, "batch source width"],
        mask: Bool[Tensor, "..."] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch source width"]:
        """The states; ``mask`` says what may be read, ``(batch, 1, source)`` for padding."""
        return self._run(x, mask, watched)


class DecoderStack(_Stack):
    """Decoder layers, each causal in what it wrote, and a norm at the end where there is one."""

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        states: Float[Tensor, "batch source width"],
        readable: Bool[Tensor, "batch 1 source"] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch target width"]:
        """The states of the decoder; ``readable`` marks the encoder states that may be read."""
        return self._run(x, TransformerEncoded(states, readable), watched)


class EncoderDecoder(_Watched):
    """An encoder, and a decoder that reads it."""

    def __init__(self, encoder: EncoderStack, decoder: DecoderStack) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source: Float[Tensor, "batch source width"],
        target: Float[Tensor, "batch target width"],
        readable: Bool[Tensor, "batch 1 source"] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch target width"]:
        """The states of the decoder; ``readable`` marks the source positions that may be read."""
        states = self.encoder(source, readable, watched)
        output: Tensor = self.decoder(target, states, readable, watched)
        return output
