"""The choice of an engine, with the reason when it is not the fastest."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.engines import availability
from regard.translation.engines.compiled.engine import CompiledEngine
from regard.translation.engines.compiled.support import unsupported
from regard.translation.engines.layers import LayersEngine
from regard.translation.engines.protocol import SearchEngine
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer import Transformer


def choose(
    model: TranslationModel, *, rounded: bool = False, avoid_loops: str = ""
) -> SearchEngine:
    """The fastest engine that computes what the model's layers compute, for its weights as they are now.

    Args:
        rounded: products of numbers rounded to 8 bits; only compiled search has them.
        avoid_loops: a reason not to load compiled loops.

    Raises:
        ConfigurationError: `rounded`, where compiled search does not support the model.
    """
    no_loops = availability.why_not(_device(model))
    reason = avoid_loops or no_loops or _why_not_compiled(model)
    if rounded and reason:
        raise ConfigurationError(f"int8 search is not possible: {reason}: use float32")
    if reason is None and isinstance(model, Transformer):
        return CompiledEngine(model, rounded=rounded)
    return LayersEngine(model, reason=reason or "", loops=not avoid_loops and no_loops is None)


def _why_not_compiled(model: TranslationModel) -> str | None:
    """Why compiled search does not support this model."""
    if not isinstance(model, Transformer):
        return f"compiled search is for a single Transformer, and this is a {type(model).__name__}"
    precisions = {weight.dtype for weight in model.parameters()} - {torch.float32}
    if precisions:
        return f"compiled search computes in float32, and this model is in another precision: {precisions.pop()}"
    return unsupported(model)


def _device(model: TranslationModel) -> torch.device:
    weight: Tensor | None = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device
