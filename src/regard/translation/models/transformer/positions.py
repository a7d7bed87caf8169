"""How a Transformer learns the order of words: a scheme for each value of `model.positions`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.positions import Alibi, RelativeBias, Rotary, sinusoidal
from regard.translation.settings.transformer import TransformerSettings


def _alibi(settings: TransformerSettings, bidirectional: bool) -> Callable[..., Tensor]:
    return Alibi(settings.heads)


def _relative(settings: TransformerSettings, bidirectional: bool) -> Callable[..., Tensor]:
    return RelativeBias(
        settings.heads,
        buckets=settings.relative_buckets,
        furthest=settings.relative_furthest,
        bidirectional=bidirectional,
    )


@dataclass(frozen=True)
class Scheme:
    """One of vectors, a rotation and a bias, or none of them.

    Args:
        vectors: the vectors of so many places, of a width, that are added to the embeddings.
        learned: whether the model owns such vectors as parameters.
        rotary: makes the rotation of queries and keys.
        bias: makes the bias of the self-attention of one side, for the settings and whether words read later ones.
    """

    vectors: Callable[[int, int], Tensor] | None = None
    learned: bool = False
    rotary: Callable[[], Rotary] | None = None
    bias: Callable[[TransformerSettings, bool], Callable[..., Tensor]] | None = None

    @property
    def table(self) -> Callable[[int, int], Tensor]:
        """The vectors, or zeros."""
        return self.vectors or torch.zeros

    @property
    def in_layers(self) -> bool:
        """Whether the layers compute it."""
        return self.rotary is not None or self.bias is not None


SCHEMES = {
    "sinusoidal": Scheme(vectors=sinusoidal),
    "learned": Scheme(learned=True),
    "rotary": Scheme(rotary=Rotary),
    "alibi": Scheme(bias=_alibi),
    "relative": Scheme(bias=_relative),
    "none": Scheme(),
}
