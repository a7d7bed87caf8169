"""A model from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.errors import ConfigurationError
from regard.translation.configuration import Configuration, RecurrentSection
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.recurrent.settings import RecurrentConfiguration
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.text.tokenizer import PAD


def build(
    configuration: Configuration, source_vocabulary: int, target_vocabulary: int
) -> TranslationModel:
    """The model a configuration describes, freshly drawn.

    Raises `ConfigurationError` when its parts do not fit together.
    """
    try:
        return _build(configuration, source_vocabulary, target_vocabulary)
    except ValueError as fault:
        raise ConfigurationError(f"model: {fault}") from None


def _build(
    configuration: Configuration, source_vocabulary: int, target_vocabulary: int
) -> TranslationModel:
    section = configuration.model
    given = section.model_dump(exclude={"kind"})
    if isinstance(section, RecurrentSection):
        names = {field.name for field in fields(RecurrentConfiguration)}
        settings = RecurrentConfiguration(**{k: v for k, v in given.items() if k in names})
        return RecurrentModel(settings, source_vocabulary, target_vocabulary, PAD)
    return Transformer(TransformerSettings(**given), source_vocabulary, target_vocabulary, PAD)


class Undrawn(TorchFunctionMode):
    """While it lasts, weights are not drawn: for a model that is about to be given others.

    Drawing costs time when a model is opened, and moves the caller's random numbers on; on the meta
    device it makes torch load its compiler.
    """

    _DRAWS = frozenset(
        (
            torch.Tensor.normal_,
            torch.Tensor.uniform_,
            nn.init.normal_,
            nn.init.uniform_,
            nn.init.kaiming_uniform_,
        )
    )

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in self._DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
