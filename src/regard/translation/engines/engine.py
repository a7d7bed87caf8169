"""The engine of a search: it runs a model's own layers, one step at a time."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.translation.engines import availability
from regard.translation.models.protocol import State, TranslationModel


class SearchEngine:
    """Runs a model for searches by its own layers. It serves all models, devices and precisions, and calls hooks.

    Other engines inherit from it and compute the same in another way. Weights are read when an engine is made or
    first used.

    Args:
        reason: why a faster engine was not chosen; "" for the fastest.
        loops: whether compiled loops may compute the search's own steps, where the device has them.
    """

    name = "layers"

    def __init__(self, model: TranslationModel, *, reason: str = "", loops: bool = True) -> None:
        self.model, self.reason = model, reason
        self.loops = loops and availability.why_not(availability.device_of(model)) is None
        output = getattr(model, "output", None)
        self._listed = (
            self.loops
            and type(output) is nn.Linear
            and output.weight.dtype == torch.float32
            and not availability.hooked(output)
        )

    def begin(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> State:
        """Encode the sources: the decoder's state before its first word."""
        return self.model.begin(source, lengths)

    def step(
        self, words: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """The logits of the next word, valid until the next step. The given state is used up."""
        return self.model.step(words, state)

    def step_listed(
        self,
        words: Int[Tensor, " rows"],
        state: State,
        lists: Int[Tensor, "sentences listed"],
        own: Int[Tensor, " rows"],
    ) -> tuple[Float[Tensor, "rows listed"], State]:
        """The logits of the words of each row's list alone; -inf for -1, no word.

        Args:
            lists: word ids, padded with -1.
            own: the list of each row.
        """
        if self._listed:
            hidden, state = self.model.advance(words, state)
            return listed_logits(self.model.output, hidden, lists, own), state
        logits, state = self.step(words, state)
        listed = lists[own]
        return logits.gather(1, listed.clamp(min=0)).masked_fill(listed == -1, -math.inf), state


def listed_logits(
    output: nn.Linear,
    hidden: Float[Tensor, "rows width"],
    lists: Int[Tensor, "sentences listed"],
    own: Int[Tensor, " rows"],
) -> Float[Tensor, "rows listed"]:
    """A dot product for each word of a row's list, and none for the others; in float32 on a processor.

    `Translator.translate` of a recurrent model with a shortlist takes 1.37 times as long with the logits of all words
    (100 sentences with es-en-recurrent, one thread of a Xeon with AVX-512).
    """
    from regard.translation.engines.listed_loops import listed

    weight = output.weight.detach()
    bias = weight.new_zeros(len(weight)) if output.bias is None else output.bias.detach()
    logits = torch.empty(len(hidden), lists.shape[1])
    arrays = (each.contiguous().numpy() for each in (lists, own, weight, bias))
    listed(hidden.detach().reshape(-1).numpy(), hidden.shape[1], *arrays, logits.view(-1).numpy())
    return logits
