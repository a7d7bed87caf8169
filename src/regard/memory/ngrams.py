"""Vectors of strings by their spelling."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

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
        from regard.memory.ngram_loops import hash_grams  # with the compiler, for strings alone

        texts = [START + unicodedata.normalize("NFC", each).casefold() + END for each in strings]
        pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
        vectors = np.zeros((len(pieces), self.width), np.float32)
        hash_grams(
            np.frombuffer(b"".join(pieces), np.uint8), ends, self.shortest, self.longest, vectors
        )
        return torch.from_numpy(vectors)
