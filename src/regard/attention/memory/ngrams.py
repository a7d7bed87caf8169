"""Vectors of strings that look alike."""

from __future__ import annotations

import math
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["CharacterNgrams"]

START, END = "\x02", "\x03"


@dataclass(frozen=True)
class CharacterNgrams:
    """Strings as unit vectors of their hashed character n-grams: close where the spelling is.

    ``vector[hash(g) mod width] += sign(g)`` for every n-gram g, then divided by its length.

    Feature hashing (Weinberger et al. 2009, arXiv 0902.2206, definition 1) over the n-grams of
    fastText (arXiv 1607.04606, section 3.2). Nothing is learnt, and the same string has the same
    vector on every machine. Upper and lower case are the same.

    Args:
        width: Width of the vectors.
        shortest: Characters of the shortest n-gram.
        longest: Characters of the longest n-gram.

    Raises:
        ValueError: If a size is below one or ``longest`` is below ``shortest``.

    Example:
        >>> subject, typo, date = CharacterNgrams()(["Subject", "subjct", "Date"])
        >>> bool(subject @ typo > 0.5 > subject @ date)
        True
    """

    width: int = 512
    shortest: int = 1
    longest: int = 3

    def __post_init__(self) -> None:
        for name in ("width", "shortest", "longest"):
            size = getattr(self, name)
            if type(size) is not int or size < 1:
                raise ValueError(f"{name} is {size!r}: pass a whole number of at least 1")
        if self.longest < self.shortest:
            raise ValueError(f"the longest n-gram ({self.longest}) is below the shortest")

    def __call__(self, strings: Sequence[str]) -> Float[Tensor, "strings width"]:
        """One unit vector for each string."""
        if not strings:
            return torch.zeros(0, self.width)
        return torch.stack([self._vector(string) for string in strings])

    def _vector(self, string: str) -> Tensor:
        text = START + unicodedata.normalize("NFC", string).casefold() + END
        # The whole string counts as well, so that even the empty one has something to count.
        cells: dict[int, int] = {}
        for gram in (*self._grams(text), text):
            code = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
            cell = (code >> 1) % self.width
            cells[cell] = cells.get(cell, 0) + (1 if code & 1 else -1)
        norm = math.sqrt(sum(count * count for count in cells.values()))
        vector = torch.zeros(self.width)
        if norm:
            index = torch.tensor(list(cells))
            vector[index] = torch.tensor(list(cells.values()), dtype=vector.dtype) / norm
        return vector

    def _grams(self, text: str) -> list[str]:
        grams = [
            text[start : start + size]
            for size in range(self.shortest, self.longest + 1)
            for start in range(len(text) - size + 1)
        ]
        return [gram for gram in grams if gram not in (START, END)]  # every string has those
