"""Engines of a search: a model's own layers one step at a time, or compiled search; and the choice of one for a model.

`Translator.translate` takes 2.54 times as long with the layers as with compiled search for 400 sentences at once, and
4.67 times as long for single sentences (benchmarks/engines.py, one thread of an AMD EPYC with AVX-512).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch

from regard.attention.blocks import ACTIVATIONS, FeedForward, Residual
from regard.attention.dropout import Dropout
from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot
from regard.loops import availability
from regard.loops.preparing import Preparation
from regard.translation.models.ensemble import Ensemble, EnsembleState, step_all
from regard.translation.models.protocol import (
    Lengths,
    Logits,
    SourceIds,
    State,
    TranslationModel,
    Words,
)
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerState,
)
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

if TYPE_CHECKING:
    from regard.translation.engines.compiled.model import CompiledModel, CompiledState

# All compiled loops of a search. Their module imports the compiler, so it is named here.
LOOPS = Preparation("regard.translation.decoding.preparation")
# The layers and the activations that they compute.
_KINDS = {
    *(EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward, Residual, Dropout),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity),
}
_ACTIVATIONS = ("relu", "gelu", "silu")


class SearchEngine:
    """Runs a model for searches by its own layers. It serves all models, devices and precisions, and calls hooks.

    Other engines inherit from it and compute the same in another way. Weights are read when an engine is made or
    first used.

    Args:
        reason: why a faster engine was not chosen; "" for the fastest.
        loops: whether compiled loops may compute the search's own steps, where the device has them and as soon as
            they are compiled.
        loops_after: sentences that are translated before compiled loops are loaded, which takes two seconds.

    Attributes:
        loops: whether compiled loops compute the steps of the search that began last: when they pay, and no other
            process still compiles them.
        normalised: whether the logits of its steps are log-probabilities.
    """

    name = "layers"
    normalised = False

    def __init__(
        self, model: TranslationModel, *, reason: str = "", loops: bool = True, loops_after: int = 0
    ) -> None:
        self.model, self.reason = model, reason
        self._may_loop = loops and loops_objection(device_of(model)) is None
        self._loops_after = loops_after
        self.loops = False

    def begin(self, source: SourceIds, lengths: Lengths) -> State:
        """Encode the sources: the decoder's state before its first word."""
        self._loops_after -= len(source)
        self.loops = self._may_loop and self._loops_after <= 0 and (self.loops or LOOPS.ready())
        return self._begin(source, lengths)

    def _begin(self, source: SourceIds, lengths: Lengths) -> State:
        return self.model.begin(source, lengths)

    def step(self, words: Words, state: State) -> tuple[Logits, State]:
        """The logits of the next word, valid until the next step. The given state is used up."""
        return self.model.step(words, state)

    def step_hidden(self, words: Words, state: State) -> tuple[Tensor, Logits, State]:
        """A step with the output layer's input, of a model that has one; both are valid until the next step."""
        hidden, state = self.model.advance(words, state)
        return hidden, self.model.logits(hidden), state


class CompiledEngine(SearchEngine):
    """Compiled search; until its loops are compiled, which happens once on a machine, the layers of the model.

    Packs the weights before the first search. Later writes to them are seen in part: make another engine then.

    Args:
        model: one that `objection` has no objection to.
        loops_after: as of `SearchEngine`.
    """

    name = "compiled"

    def __init__(self, model: Transformer, *, loops_after: int = 0) -> None:
        reason = f"after {loops_after} sentences: loading compiled loops takes longer than translating so few"
        super().__init__(model, reason=reason if loops_after else "", loops_after=loops_after)
        self.transformer = model

    @cached_property
    def compiled(self) -> CompiledModel:
        """The weights as the loops read them. Loads the loops."""
        from regard.translation.engines.compiled.model import CompiledModel

        return CompiledModel(self.transformer)

    def _begin(self, source: SourceIds, lengths: Lengths) -> State:
        if not self.loops:
            return super()._begin(source, lengths)
        from regard.translation.engines.compiled.model import CompiledState

        return CompiledState(self.compiled, source, lengths)

    def step(self, words: Words, state: State) -> tuple[Logits, State]:
        if isinstance(state, TransformerState):  # this search began before the loops were ready
            return super().step(words, state)
        return cast("CompiledState", state).step(words), state

    def step_hidden(self, words: Words, state: State) -> tuple[Tensor, Logits, State]:
        if isinstance(state, TransformerState):
            return super().step_hidden(words, state)
        compiled = cast("CompiledState", state)
        logits = compiled.step(words)
        return compiled.hidden(len(words)), logits, state


class EnsembleEngine(SearchEngine):
    """Runs each model of an ensemble by an engine of its own."""

    def __init__(
        self, model: Ensemble, engines: Sequence[SearchEngine], *, loops_after: int = 0
    ) -> None:
        reason = "; ".join(dict.fromkeys(each.reason for each in engines if each.reason))
        loops = all(engine._may_loop for engine in engines)
        super().__init__(model, reason=reason, loops=loops, loops_after=loops_after)
        self.engines = engines
        self.name = " + ".join(engine.name for engine in engines)

    def _begin(self, source: SourceIds, lengths: Lengths) -> EnsembleState:
        return EnsembleState([each.begin(source, lengths) for each in self.engines])

    def step(self, words: Words, state: State) -> tuple[Logits, EnsembleState]:
        return step_all(self.engines, words, state)


def choose(model: TranslationModel, *, avoid_loops: str = "", loops_after: int = 0) -> SearchEngine:
    """The fastest engine that computes what the model's layers compute, for its weights as they are now.

    `avoid_loops` is a reason not to load compiled loops; `loops_after` sentences are translated before they are loaded.
    """
    if isinstance(model, Ensemble):
        engines = [choose(each, avoid_loops=avoid_loops, loops_after=loops_after) for each in model]
        return EnsembleEngine(model, engines, loops_after=loops_after)
    reason = avoid_loops or loops_objection(device_of(model)) or objection(model)
    if isinstance(model, Transformer) and not reason:
        return CompiledEngine(model, loops_after=loops_after)
    return SearchEngine(model, reason=reason or "", loops=not avoid_loops, loops_after=loops_after)


def objection(model: TranslationModel) -> str | None:
    """What of this model the compiled loops do not compute; None where they compute all of it.

    They add positions to the words, so scores have neither biases nor rotations; they call no hooks and no layers of
    other kinds, such as adapted or quantized ones.
    """
    if not isinstance(model, Transformer):
        return f"compiled search is for a single Transformer, and this is a {type(model).__name__}"
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


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients and without dropout; every module is put back as it was.

    Not inference mode: tensors that a model caches meanwhile (a table of positions, say) must serve
    training too.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    weight: Tensor | None = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def loops_objection(device: torch.device) -> str | None:
    """Why compiled loops cannot search there; None where they can. It loads no loops.

    Their machine code must be kept: compiling takes longer than translating most texts.
    """
    if device.type != "cpu":
        return f"compiled loops run on processors, and this model is on {device}"
    if not availability.are_compiled():
        return "loops are not compiled: unset NUMBA_DISABLE_JIT"
    if not _can_be_kept():
        return (
            "the folder for compiled loops cannot be written: "
            "set NUMBA_CACHE_DIR or XDG_CACHE_HOME to one that can be written"
        )
    return None


@cache
def _can_be_kept() -> bool:
    try:
        folder = LOOPS.folder
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it cannot be made, or this person has no home
        return False
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)  # another user may have made it


def hooked(model: nn.Module) -> bool:
    """Whether the model or a module within has a hook or a `forward` of its own, or all modules have."""
    return modules_of_torch._has_any_global_hook() or any(
        within._forward_hooks
        or within._forward_pre_hooks
        or within._backward_hooks
        or within._backward_pre_hooks
        or "forward" in vars(within)
        for within in model.modules()
    )
