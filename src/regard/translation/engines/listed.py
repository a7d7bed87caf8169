"""The output layer where every sentence has a short list of words."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def listed_logits(
    output: nn.Linear,
    hidden: Float[Tensor, "rows width"],
    lists: Int[Tensor, "sentences listed"],
    own: Int[Tensor, " rows"],
) -> Float[Tensor, "rows listed"]:
    """The logits of the words of each row's own list; -inf for -1, no word.

    In float32 on a processor, without gradients: a dot product for each listed word, and nothing for the others.
    """
    from regard.translation.engines.listed_loops import listed

    weight = output.weight.detach()
    bias = weight.new_zeros(len(weight)) if output.bias is None else output.bias.detach()
    logits = torch.empty(len(hidden), lists.shape[1])
    arrays = (each.contiguous().numpy() for each in (lists, own, weight, bias))
    listed(hidden.detach().reshape(-1).numpy(), hidden.shape[1], *arrays, logits.view(-1).numpy())
    return logits


def gather_listed(
    logits: Float[Tensor, "rows vocabulary"],
    lists: Int[Tensor, "sentences listed"],
    own: Int[Tensor, " rows"],
) -> Float[Tensor, "rows listed"]:
    """The same, taken from the logits of all words."""
    words = lists[own]
    return logits.gather(1, words.clamp(min=0)).masked_fill(words == -1, -math.inf)
