"""An ordinary Transformer over one sequence: embeddings, pre-norm blocks, a norm, an output layer."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.blocks import TransformerBlock
from regard.attention.heads import new_norm
from regard.attention.looks import Look
from regard.programs.sizes import Sizes


class SequenceModel(nn.Module):
    """A number or a class for each position. Programs are compiled into this model; it can also be trained.

    x = token embedding + position embedding; then the blocks, a norm and a linear layer. Token 0 is the beginning of
    a sequence. If it is causal, a position reads only itself and those before it.

    Example:
        >>> import torch
        >>> model = SequenceModel(Sizes(2, 1, 4, 16, 8, tokens=4, places=9, answers=3))
        >>> model(torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 3])
    """

    def __init__(self, sizes: Sizes, causal: bool = False) -> None:
        super().__init__()
        self.sizes, self.mask = sizes, "causal" if causal else None
        self.tokens = nn.Embedding(sizes.tokens, sizes.width)
        self.places = nn.Embedding(sizes.places, sizes.width)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                sizes.width,
                sizes.heads,
                sizes.feed_forward,
                normalisation="rms",
                d_head=sizes.head_width,
                feed_forward_bias=False,
            )
            for _ in range(sizes.layers)
        )
        self.norm = new_norm(sizes.width, "rms")
        self.output = nn.Linear(sizes.width, sizes.answers, bias=False)

    def forward(self, ids: Int[Tensor, "*batch length"]) -> Float[Tensor, "*batch length answers"]:
        """The outputs for token ids, the first of each sequence being 0."""
        x = self._embedded(ids)
        for block in self.blocks:
            x = block(x, mask=self.mask)
        output: Tensor = self.output(self.norm(x))
        return output

    def read(
        self, ids: Int[Tensor, "*batch length"]
    ) -> tuple[Float[Tensor, "*batch length answers"], list[Look]]:
        """The outputs, and the look of each block, (*batch, heads, length, length)."""
        x, looks = self._embedded(ids), []
        block: Any  # a TransformerBlock, which a list of modules does not say
        for block in self.blocks:
            x, look = block.read(x, mask=self.mask)
            looks.append(look["self"])
        return self.output(self.norm(x)), looks

    def _embedded(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(ids) + self.places(
            torch.arange(ids.shape[-1], device=ids.device)
        )
        return embedded
