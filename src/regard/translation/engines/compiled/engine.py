"""The engine of compiled search, and which Transformers it computes.

`Translator.translate` takes 1.55 times as long with the layers engine for 400 sentences at once, and 2.78 times as long
for single sentences (benchmarks/engines.py, one thread of a Xeon with AVX-512).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.blocks import ACTIVATIONS, Dropout, FeedForward, Residual
from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.translation.engines.availability import hooked
from regard.translation.engines.engine import SearchEngine
from regard.translation.models.protocol import State
from regard.translation.models.transformer import DecoderLayer, EncoderLayer, Transformer
from regard.translation.settings import TransformerSettings

if TYPE_CHECKING:
    from regard.translation.engines.compiled.model import CompiledModel
    from regard.translation.engines.compiled.state import CompiledState

_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = ("relu", "gelu", "silu")


class CompiledEngine(SearchEngine):
    """Packs the weights before the first search. Later writes to them are seen in part: make another engine then.

    Args:
        model: one that `unsupported` has no objection to.
        rounded: products of numbers rounded to 8 bits.
    """

    name = "compiled"

    def __init__(self, model: Transformer, *, rounded: bool = False) -> None:
        super().__init__(model)
        self.transformer, self.rounded = model, rounded

    @cached_property
    def compiled(self) -> CompiledModel:
        """The weights as the loops read them. Loads the loops."""
        from regard.translation.engines.compiled.model import CompiledModel

        return CompiledModel(self.transformer, rounded=self.rounded)

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> CompiledState:
        from regard.translation.engines.compiled.state import CompiledState

        return CompiledState(self.compiled, source, lengths)

    def step(
        self, words: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        return cast("CompiledState", state).step(words), state

    def step_listed(
        self,
        words: Int[Tensor, " rows"],
        state: State,
        lists: Int[Tensor, "sentences listed"],
        own: Int[Tensor, " rows"],
    ) -> tuple[Float[Tensor, "rows listed"], State]:
        listed = lists.contiguous().numpy(), own.numpy()
        return cast("CompiledState", state).step(words, *listed), state


def unsupported(model: Transformer) -> str | None:
    """What of this model the compiled loops do not compute; None where they compute all of it.

    They add positions to the words, so scores have neither biases nor rotations; they call no hooks and no layers of
    other kinds, such as adapted or quantized ones.
    """
    precisions = {weight.dtype for weight in model.parameters()} - {torch.float32}
    if precisions:
        return f"compiled search computes in float32, and this model is in another precision: {precisions.pop()}"
    if not model.adds_positions:
        return f"compiled search has no {model.settings.positions} positions"
    if hooked(model):
        return "compiled search calls no hooks, and this model has some"
    for name, module in model.named_modules():
        if module is not model and not _is_known(module, model.settings):
            return f"compiled search does not compute {name} ({type(module).__name__}) as it is set"
    return None


def _is_known(module: nn.Module, settings: TransformerSettings) -> bool:
    """Whether it is of a kind that the loops have, and still what the settings say, which the loops go by."""
    if type(module) not in _KINDS:
        return False
    if isinstance(module, MultiHeadAttention):  # softmax of scaled dot products, and nothing more
        return (
            (module.score is None or module.score == ScaledDot())
            and (module.normaliser is None or module.normaliser == Softmax())
            and module.merge == "concat"
            and module.dropout == 0
            and module.rotary is None
            and module.query_norm is None
            and module.group == 1
            and module.heads * module.d_head == module.d_query
        )
    if isinstance(module, FeedForward):
        return (
            module.gate is None
            and module.inner.bias is not None
            and settings.activation in _ACTIVATIONS
            and module.activation is ACTIVATIONS[settings.activation]
        )
    if isinstance(module, Residual):
        return module.before == (settings.norm == "pre")
    return not isinstance(module, Dropout) or module.rate == settings.dropout
