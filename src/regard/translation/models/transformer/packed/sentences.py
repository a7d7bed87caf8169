"""Sentences end to end: where each begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Sentences:
    """The words of a padded batch, sentence after sentence.

    Attributes:
        words: Their ids.
        places: The position of each in its sentence, from 0.
        starts: Where each sentence begins among the words; the last is their number.
    """

    words: Int[Tensor, " words"]
    places: Int[Tensor, " words"]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, padded: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]) -> Sentences:
        """The first `lengths` words of each row of a batch."""
        if len(lengths) and int(lengths.max()) > padded.shape[1]:
            raise ValueError(
                f"a length of {int(lengths.max())} in a batch of {padded.shape[1]} positions"
            )
        place = torch.arange(padded.shape[1])
        real = place < lengths[:, None]
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths.numpy(), out=starts[1:])
        return cls(padded[real], place.expand_as(padded)[real], starts)
