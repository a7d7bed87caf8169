"""A model from its configuration."""

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.translation.models.protocol import TranslationModel
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.text.tokenizer import PAD

_INITIALISERS = (
    *(torch.Tensor.normal_, torch.Tensor.uniform_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_),
)


def build(
    configuration: Configuration, source_vocabulary: int, target_vocabulary: int
) -> TranslationModel:
    settings = configuration.model
    if isinstance(settings, RecurrentSettings):
        return RecurrentModel(settings, source_vocabulary, target_vocabulary, PAD)
    return Transformer(settings, source_vocabulary, target_vocabulary, PAD)


class SkipInitialisation(TorchFunctionMode):
    """While it is entered, new modules do not initialise their weights: for models whose weights are loaded next.

    Initialising takes time, and changes the state of torch's random numbers; on the meta device it makes torch load
    its compiler, which takes longer than opening a model.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _INITIALISERS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
