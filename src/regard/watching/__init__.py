"""Observe the attention of any PyTorch model while it runs, and run it with edited attention."""

from regard.watching import edits as edits
from regard.watching import huggingface as huggingface  # it registers its functions
from regard.watching import torch_layers as torch_layers  # it registers its functions
from regard.watching.captured import CapturedCall
from regard.watching.change import change
from regard.watching.effect_table import Effect, EffectTable
from regard.watching.effects import effects
from regard.watching.errors import WatchError
from regard.watching.functions import declare
from regard.watching.interception import register
from regard.watching.readings import Readings
from regard.watching.routes import Rollout, Routes, routes
from regard.watching.seen import Seen
from regard.watching.watch import watch

__all__ = [
    "CapturedCall",
    "Effect",
    "EffectTable",
    "Readings",
    "Rollout",
    "Routes",
    "Seen",
    "WatchError",
    "change",
    "declare",
    "edits",
    "effects",
    "register",
    "routes",
    "watch",
]
