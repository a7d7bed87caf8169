"""Alignment: a matrix of weights with the words of its rows and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from regard.attention.shapes import ShapeError
from regard.viewing import pieces

if TYPE_CHECKING:
    from regard.attention.looks import Look
    from regard.translation.results import Translation


@dataclass(eq=False)
class Alignment:
    """Weights with a label for each query and key.

    Args:
        weights: (queries, keys), a tensor or an array; kept as a float64 array on the CPU.
        queries: a word for each row.
        keys: a word for each column.
        title: the title of the picture.
        readable: (queries, keys), which keys each query may read; None if no key is masked.

    Raises:
        ShapeError: there is not a word for each row or column.
        ValueError: a weight is not a finite number.

    >>> Alignment(np.eye(2), ["a", "b"], ["x", "y"]).weights.shape
    (2, 2)
    """

    weights: Float[np.ndarray, "queries keys"]
    queries: list[str]
    keys: list[str]
    title: str = ""
    readable: Bool[np.ndarray, "queries keys"] | None = None

    def __post_init__(self) -> None:
        self.weights = _array(self.weights)
        words = len(self.queries), len(self.keys)
        if self.weights.shape != words:
            raise ShapeError(
                f"the weights have shape {list(self.weights.shape)}, for {words[0]} queries and {words[1]} keys: "
                "pass a word for each row and each column"
            )
        for row, column in np.argwhere(~np.isfinite(self.weights)):
            weight = self.weights[row, column]
            raise ValueError(f"weight [{row}, {column}] is {weight}: expected a finite number")

    def words(self) -> Alignment:
        """Merge subwords into words: sum the weights over keys, average them over queries.

        Rows that summed to 1 still do. Merging twice changes nothing.

        >>> alignment = Alignment(np.eye(3), ["▁a", "▁b", "c"], ["▁x", "y", "</s>"]).words()
        >>> alignment.keys, alignment.weights.tolist()
        (['xy', '</s>'], [[1.0, 0.0], [0.5, 0.5]])
        """
        rows, columns = pieces.spans(self.queries), pieces.spans(self.keys)
        down, across = [start for start, _ in rows], [start for start, _ in columns]
        summed = np.add.reduceat(np.add.reduceat(self.weights, across, axis=1), down, axis=0)
        merged = summed / np.array([[stop - start] for start, stop in rows])
        queries = [pieces.join(self.queries[a:b]) for a, b in rows]
        keys = [pieces.join(self.keys[a:b]) for a, b in columns]
        readable = self.readable
        if readable is not None:
            readable_columns = np.logical_or.reduceat(readable, across, axis=1)
            readable = np.logical_or.reduceat(readable_columns, down, axis=0)
        return Alignment(merged, queries, keys, self.title, readable)

    @property
    def masked(self) -> Float[np.ndarray, "queries keys"]:
        """The weights as a masked array, in which keys that may not be read are masked."""
        return np.ma.masked_array(self.weights, False if self.readable is None else ~self.readable)

    @property
    def has_masked(self) -> bool:
        """Whether there is a key that some query may not read."""
        return self.readable is not None and not self.readable.all()

    @property
    def top(self) -> float:
        """The weight at the end of the colour scale, which begins at 0: a round number, for pictures to compare.

        >>> Alignment(np.array([[0.3, 0.25]]), ["a"], ["x", "y"]).top
        0.5
        """
        return round_up(float(self.weights.max()))


def by_head(
    look: Look, queries: Sequence[str], keys: Sequence[str], *, title: str = ""
) -> list[Alignment]:
    """One alignment for each head of a look over one sentence.

    Args:
        look: of shape ([1,] [heads,] queries, keys).
        queries: one label for each query.
        keys: one label for each key.
        title: the title of each; "head N" (from 0) is added if there are several heads.
    """
    weights, readable_keys = _array(look.weights()), look.readable()
    heads = weights.reshape(-1, *weights.shape[-2:])
    readable = (
        repeat(None) if readable_keys is None else readable_keys.cpu().numpy().reshape(heads.shape)
    )
    titles = [title]
    if len(heads) > 1:
        titles = [f"{title}, head {head}".removeprefix(", ") for head in range(len(heads))]
    return [
        Alignment(matrix, list(queries), list(keys), name, own)
        for matrix, name, own in zip(heads, titles, readable, strict=False)
    ]


def mean(alignments: Sequence[Alignment], *, title: str | None = None) -> Alignment:
    """The mean of the heads of one layer; a cell is masked if it is masked in all of them.

    >>> one, two = Alignment([[1, 0]], ["a"], ["x", "y"]), Alignment([[0, 1]], ["a"], ["x", "y"])
    >>> mean([one, two]).weights.tolist()
    [[0.5, 0.5]]
    """
    head = alignments[0]
    weights = np.mean([alignment.weights for alignment in alignments], axis=0)
    readable_cells = [a.readable for a in alignments if a.readable is not None]
    readable = np.any(readable_cells, axis=0) if readable_cells else None
    title = head.title if title is None else title
    return Alignment(weights, head.queries, head.keys, title, readable)


def alignment_of(
    translation: Translation,
    name: str | None = None,
    head: int | None = None,
    title: str | None = None,
) -> Alignment:
    """One look of a translation in whole words: of one head, or the mean of all heads.

    Raises:
        ValueError: the translation has no such look.
    """
    name = last_cross(translation) if name is None else name
    if name is None or name not in translation.looks:
        names = ", ".join(translation.looks) or "none: translate with looks=True"
        missing = "of cross-attention" if name is None else repr(name)
        raise ValueError(f"the translation has no look {missing}: there are {names}")
    look = translation.looks[name]
    heads = by_head(look if head is None else look[..., head], *translation.labels(name))
    label = name if head is None else f"{name}, head {head}"
    return mean([each.words() for each in heads], title=label if title is None else title)


def last_cross(translation: Translation) -> str | None:
    """The name of the cross-attention of the last layer."""
    crossing = [name for name in translation.looks if name.endswith("cross")]
    return crossing[-1] if crossing else None


def _array(weights: Any) -> Float[np.ndarray, "..."]:
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()
    return np.asarray(weights, dtype=np.float64)


def round_up(value: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below the value; 1 for 0.

    >>> [round_up(value) for value in (0.0, 0.02, 0.118, 0.97)]
    [1.0, 0.02, 0.2, 1.0]
    """
    if value <= 1e-12:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value * (1 - 1e-6)))
    step = next(step for step in (1, 2, 5, 10) if value * (1 - 1e-6) <= step * decade)
    return float(f"{step * decade:.0e}")
