"""Asking for searches that round to 8 bits, and why a model may not."""

from __future__ import annotations

import torch
from torch import nn

from regard.errors import ConfigurationError
from regard.loops import availability as loops
from regard.translation.models import compiling
from regard.translation.models.transformer import Transformer
from regard.translation.models.transformer.plain import is_plain


def round_products(model: nn.Module) -> None:
    """Let a search of this model round weights, and what they are multiplied by, to 8 bits.

    Raises:
        ConfigurationError: only a Transformer's plan on a processor does that.
    """
    if not isinstance(model, Transformer):
        raise ConfigurationError("int8 is for a single Transformer: use float32")
    device = model.output.weight.device
    if device.type != "cpu":
        raise ConfigurationError(f"int8 is for processors, this model is on {device}: use float32")
    if not is_plain(model):
        raise ConfigurationError(
            "int8 knows no hooks, and no positions or layers that compiled loops do not: use float32"
        )
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        raise ConfigurationError("int8 rounds float32, this model computes in another precision")
    if not loops.are_compiled():
        raise ConfigurationError("int8 needs compiled loops: unset NUMBA_DISABLE_JIT")
    compiling.want(True)
    if not compiling.serves(device):
        raise ConfigurationError(
            "int8 needs a folder for compiled loops: set XDG_CACHE_HOME to one that can be written"
        )
    model.rounded = True
