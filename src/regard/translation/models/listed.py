"""The output layer where every sentence has a short list of words: a dot product each, with weights as they lie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.loops import availability as loops
from regard.translation.models import compiling
from regard.translation.models.hooks import hooked

if TYPE_CHECKING:
    from regard.translation.models.protocol import TranslationModel


def listed_logits(
    model: TranslationModel,
    hidden: Float[Tensor, "rows width"],
    lists: Int[Tensor, "sentences listed"],
    own: Int[Tensor, " rows"],
) -> Float[Tensor, "rows listed"]:
    """The logits of the words of each row's own list alone; -inf for -1, which is no word.

    On a processor only those are computed. Elsewhere, and where the output layer is not one linear map of float32
    that nobody watches, the logits of all words are, and these taken.
    """
    projection = model.projection
    if projection is not None and _serves(projection, hidden):
        from regard.translation.models.listed_loops import listed

        weight = projection.weight.detach()
        bias = (
            weight.new_zeros(len(weight)) if projection.bias is None else projection.bias.detach()
        )
        logits = torch.empty(len(hidden), lists.shape[1])
        arrays = (each.contiguous().numpy() for each in (lists, own, weight, bias))
        listed(
            hidden.detach().reshape(-1).numpy(), hidden.shape[1], *arrays, logits.view(-1).numpy()
        )
        return logits
    words = lists[own]
    logits = model.logits(hidden).gather(1, words.clamp(min=0))
    return logits.masked_fill(words == -1, -math.inf)


def _serves(projection: nn.Linear, hidden: Tensor) -> bool:
    return (
        type(projection) is nn.Linear
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and projection.weight.dtype == hidden.dtype == torch.float32
        and compiling.serves(hidden.device)
        and loops.serve(hidden, projection.weight)
        and not hooked(projection)
    )
