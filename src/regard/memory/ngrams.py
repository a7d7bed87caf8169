"""Vectors of strings by their spelling."""

import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

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
        """One unit vector for each string.

        Raises:
            TypeError: for a single string, whose letters would be encoded one by one.
        """
        if isinstance(strings, str):
            raise TypeError(
                f"strings is {strings!r}: pass a list of strings, such as [{strings!r}]"
            )
        counts = np.zeros((len(strings), self.width), np.float32)
        for row, string in zip(counts, strings, strict=True):
            for gram in self._grams(string):
                code = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
                row[(code >> 1) % self.width] += 1 if code & 1 else -1
        return F.normalize(torch.as_tensor(counts), dim=-1)

    def _grams(self, string: str) -> list[str]:
        text = START + unicodedata.normalize("NFC", string).casefold() + END
        grams = [
            text[start : start + size]
            for size in range(self.shortest, min(self.longest, len(text)) + 1)
            for start in range(len(text) - size + 1)
        ]
        # Every string has the marks. The whole counts too: the empty one has nothing else.
        return [*(gram for gram in grams if gram not in (START, END)), text]
