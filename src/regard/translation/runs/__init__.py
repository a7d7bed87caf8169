"""The run folder: configuration, tokenizers, checkpoints, and the published model with its card."""

from regard.translation.runs.layout import Tokenizers
from regard.translation.runs.run import Run

__all__ = ["Run", "Tokenizers"]
