"""The sizes of a Transformer over one sequence, and its number of parameters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes of a compiled program.

    Attributes:
        layers: blocks.
        heads: heads of each block.
        head_width: width of the queries, keys and values of a head.
        width: width of the residual stream.
        feed_forward: hidden units of each block.
        tokens: the vocabulary with the beginning of a sequence.
        places: positions, with that of the beginning.
        answers: outputs.

    Example:
        >>> Sizes(1, 1, 4, 16, 8, 4, 9, 9).parameters
        912
    """

    layers: int
    heads: int
    head_width: int
    width: int
    feed_forward: int
    tokens: int
    places: int
    answers: int

    @property
    def parameters(self) -> int:
        """Embeddings, output layer and norms, and in each block four projections and two layers."""
        block = 4 * self.heads * self.head_width + 2 * self.feed_forward + 2
        around = self.tokens + self.places + self.answers + 1
        return self.width * (self.layers * block + around)
