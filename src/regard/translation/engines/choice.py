"""The choice of an engine, with the reason when it is not the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.engines import availability
from regard.translation.engines.compiled.engine import CompiledEngine, unsupported
from regard.translation.engines.engine import SearchEngine
from regard.translation.models.ensemble import Ensemble, EnsembleState, step_all
from regard.translation.models.protocol import State, TranslationModel
from regard.translation.models.transformer import Transformer


def choose(
    model: TranslationModel, *, rounded: bool = False, avoid_loops: str = ""
) -> SearchEngine:
    """The fastest engine that computes what the model's layers compute, for its weights as they are now.

    Args:
        rounded: products of numbers rounded to 8 bits; only compiled search of a single model has them.
        avoid_loops: a reason not to load compiled loops.

    Raises:
        ConfigurationError: `rounded`, where compiled search does not support the model.
    """
    if isinstance(model, Ensemble) and not rounded:
        return EnsembleEngine(model, [choose(each, avoid_loops=avoid_loops) for each in model])
    reason = avoid_loops or availability.why_not(availability.device_of(model))
    if not reason and not isinstance(model, Transformer):
        reason = (
            f"compiled search is for a single Transformer, and this is a {type(model).__name__}"
        )
    if not reason and isinstance(model, Transformer):
        reason = unsupported(model)
        if reason is None:
            return CompiledEngine(model, rounded=rounded)
    if rounded:
        raise ConfigurationError(f"int8 search is not possible: {reason}: use float32")
    return SearchEngine(model, reason=reason or "", loops=not avoid_loops)


class EnsembleEngine(SearchEngine):
    """Runs each model of an ensemble by an engine of its own."""

    def __init__(self, model: Ensemble, engines: Sequence[SearchEngine]) -> None:
        reason = "; ".join(dict.fromkeys(each.reason for each in engines if each.reason))
        super().__init__(model, reason=reason, loops=all(engine.loops for engine in engines))
        self.engines = engines
        self.name = " + ".join(engine.name for engine in engines)

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> EnsembleState:
        return EnsembleState([each.begin(source, lengths) for each in self.engines])

    def step(
        self, words: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocabulary"], EnsembleState]:
        return step_all(self.engines, words, state)
