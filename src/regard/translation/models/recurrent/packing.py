"""Batches without their padding: the words of a step side by side, longest sentence first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Packing"]


@dataclass(frozen=True)
class Packing:
    """Where the words of a padded batch are.

    The same order as torch.nn.utils.rnn.PackedSequence; the gradients of packing, of the steps and
    of unpacking are one copy each here, where those of torch.nn.GRU grow with the square of the
    length on a CPU.

    Attributes:
        order: Sentences by length, longest first; equals keep their order.
        sizes: How many sentences have a word at each step; never 0.
        places: Position of each packed word in the flattened (batch x source) rows.
        here: (batch, 1, source) True where a sentence has a word; None where all have one.
        shape: Batch and source length of the padded form.
    """

    order: Int[Tensor, " batch"]
    sizes: list[int]
    places: Int[Tensor, " words"]
    here: Bool[Tensor, "batch 1 source"] | None
    shape: tuple[int, int]

    @classmethod
    def of(cls, lengths: Int[Tensor, " batch"], longest: int) -> Packing:
        """The packing of sentences of these lengths, padded to `longest`."""
        ordered, order = torch.sort(lengths, descending=True, stable=True)
        step = torch.arange(longest, device=lengths.device)
        sizes = [size for size in (step[:, None] < ordered).sum(1).tolist() if size]
        places = (order * longest + step[:, None])[step[:, None] < ordered]
        here = None if len(places) == len(order) * longest else (step < lengths[:, None])[:, None]
        return cls(order, sizes, places, here, (len(lengths), longest))

    def pack(self, padded: Float[Tensor, "batch source width"]) -> Float[Tensor, "words width"]:
        """The words alone."""
        return padded.flatten(0, 1).index_select(0, self.places)

    def unpack(self, packed: Float[Tensor, "words width"]) -> Float[Tensor, "batch source width"]:
        """Back into rows of sentences, 0 on padding."""
        rows, longest = self.shape
        padded = packed.new_zeros(rows * longest, packed.shape[-1])
        return padded.index_copy(0, self.places, packed).view(rows, longest, packed.shape[-1])

    def restore(self, ordered: Float[Tensor, "some width"]) -> Float[Tensor, "batch width"]:
        """One row a sentence, from longest first to the batch's order; 0 for empty sentences."""
        rows = ordered.new_zeros(self.shape[0], ordered.shape[-1])
        return rows.index_copy(0, self.order[: len(ordered)], ordered)
