"""Metrics: what `regard.effects` and `regard.routes` measure of a model's output."""

from regard.watching.metrics import *
from regard.watching.metrics import __all__ as __all__
