"""The sizes of a Transformer over one sequence, and its number of parameters."""

from dataclasses import astuple, dataclass

LARGEST = 100_000


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

    Raises:
        ValueError: a size is not from 1 to 100,000.

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

    def __post_init__(self) -> None:
        if not all(1 <= size <= LARGEST for size in astuple(self)):
            raise ValueError(f"{self!r}: a size is not from 1 to {LARGEST}")

    def __str__(self) -> str:
        def counted(number: int, thing: str) -> str:
            return f"{number:,} {thing}{'s' * (number != 1)}"

        return (
            f"{counted(self.layers, 'layer')}, {counted(self.heads, 'head')} of width {self.head_width}, "
            f"stream of width {self.width}, {counted(self.feed_forward, 'hidden unit')}, "
            f"{counted(self.parameters, 'parameter')}"
        )

    @property
    def parameters(self) -> int:
        """Embeddings, output layer and norms, and in each block four projections and two layers."""
        block = 4 * self.heads * self.head_width + 2 * self.feed_forward + 2
        around = self.tokens + self.places + self.answers + 1
        return self.width * (self.layers * block + around)
