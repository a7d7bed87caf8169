"""The engine of compiled search.

`Translator.translate` takes 1.55 times as long with the layers engine for 400 sentences at once, and 2.78 times as long
for single sentences (benchmarks/engines.py, one thread of a Xeon with AVX-512).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.engines.protocol import SearchEngine
from regard.translation.models.protocol import State
from regard.translation.models.transformer import Transformer

if TYPE_CHECKING:
    from regard.translation.engines.compiled.model import CompiledModel
    from regard.translation.engines.compiled.state import CompiledState


class CompiledEngine(SearchEngine):
    """Packs the weights before the first search. Later writes to them are seen in part: make another engine then.

    Args:
        model: one that `support.unsupported` has no objection to.
        rounded: products of numbers rounded to 8 bits.
    """

    name = "compiled"

    def __init__(self, model: Transformer, *, rounded: bool = False) -> None:
        self.model: Transformer = model
        self.rounded = rounded

    @cached_property
    def compiled(self) -> CompiledModel:
        """The weights as the loops read them. Loads the loops."""
        from regard.translation.engines.compiled.model import CompiledModel

        return CompiledModel(self.model, rounded=self.rounded)

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> CompiledState:
        from regard.translation.engines.compiled.state import CompiledState

        return CompiledState(self.compiled, self.compiled.encode(source, lengths))

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], State]:
        return cast("CompiledState", state).step(words), state
