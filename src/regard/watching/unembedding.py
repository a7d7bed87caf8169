"""The last layers of a language model, and whether heads write the tokens that they read."""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.watching.readings import CLOSE, Readings

NORM = re.compile("norm", re.IGNORECASE)
SAMPLE = 128  # keys of a text


@dataclass(frozen=True, eq=False)
class Unembedding:
    """The layer that makes logits of states, and the norm before it, if there is one."""

    weight: Float[Tensor, "vocabulary d_model"]
    norm: nn.Module | None

    def direction(
        self, outputs: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """What the norm makes of an addition to its input, up to a factor above 0.

        A norm divides by a number that the whole state decides; the order of logits is the same for any.
        """
        if self.norm is None:
            return outputs
        normed: Tensor = self.norm(outputs) - self.norm(torch.zeros_like(outputs[..., :1, :]))
        return normed


class LastLayers:
    """Notes the modules that run, the last norm and the layer of logits among them."""

    def __init__(self) -> None:
        self._norm: nn.Module | None = None
        self._normed = self._read = torch.empty(0)  # the last rows of what both read
        self._weight: Tensor | None = None

    def note(self, module: nn.Module, arguments: object, vocabulary: int) -> None:
        """Note a module that begins to run, in a model of so many tokens."""
        states = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if not isinstance(states, Tensor) or states.ndim != 3 or not states.is_floating_point():
            return
        if NORM.search(type(module).__name__):
            self._norm, self._normed = module, states[:, -1:].detach().clone()
        elif isinstance(module, nn.Linear) and module.out_features == vocabulary:
            self._weight, self._read = module.weight, states[:, -1:].detach().clone()

    @torch.no_grad()
    def unembedding(self) -> Unembedding | None:
        """The layer of logits; None if there is none, or if it does not read the last norm as it is."""
        if self._weight is None:
            return None
        if self._norm is not None:
            normed = self._norm(self._normed)
            bound = CLOSE * max(1e-6, float(self._read.abs().max()))
            if normed.shape != self._read.shape or not torch.allclose(
                normed, self._read, rtol=0.0, atol=bound
            ):
                return None
        return Unembedding(self._weight.detach(), self._norm)


@torch.no_grad()
def token_writes(
    readings: Readings,
    unembedding: Unembedding,
    tokens: Int[Tensor, "entries keys"],
    counts: Bool[Tensor, "entries keys"] | None = None,
) -> Float[Tensor, "heads"] | None:
    """Of the keys, the share whose own token a head's output raises most among the tokens of the text.

    The output is value x output projection, as it reaches the logits if no later layer changes it: the OV circuit
    of Elhage et al. 2021, "A mathematical framework for transformer circuits". A text of n tokens gives 1 / n by
    chance. At most 128 keys of a text are compared.

    Args:
        readings: of the attention.
        unembedding: of the model.
        tokens: the ids of the keys.
        counts: the keys that are no padding; None for all.

    Returns:
        None where the output projection is unknown, or makes states of another width.
    """
    projection = readings.projection
    if projection is None or projection.weight.shape[-1] != unembedding.weight.shape[-1]:
        return None
    values = readings.call.values()
    shares = []
    for entry, ids in enumerate(tokens):
        places = torch.arange(len(ids), device=ids.device)
        places = places if counts is None else places[counts[entry].to(places.device)]
        places = places[:: -(-len(places) // SAMPLE) or 1]
        if not len(places):
            continue
        distinct, token = ids[places].unique(return_inverse=True)
        outputs = values[entry, :, places.to(values.device)] @ projection.weight.to(values)
        directions = unembedding.direction(outputs.to(unembedding.weight))
        logits = directions @ unembedding.weight[distinct.to(unembedding.weight.device)].mT
        shares.append((logits.argmax(-1) == token.to(logits.device)).double().mean(-1))
    return torch.stack(shares).mean(0) if shares else None
