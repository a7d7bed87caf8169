"""The run folder: configuration, tokenizers, checkpoints, and the published model with its card."""

from regard.translation.runs.layout import (
    ALIGNMENT,
    CHECKPOINT_FILES,
    CHECKPOINTS,
    CONFIGURATION,
    METRICS,
    MODEL,
    OPTIMISER,
    PROGRESS,
    SHORTLIST,
    checkpoint_name,
    checkpoint_sums,
)
from regard.translation.runs.run import Run
from regard.translation.runs.tokenizers import Tokenizers

__all__ = [
    "ALIGNMENT",
    "CHECKPOINTS",
    "CHECKPOINT_FILES",
    "CONFIGURATION",
    "METRICS",
    "MODEL",
    "OPTIMISER",
    "PROGRESS",
    "SHORTLIST",
    "Run",
    "Tokenizers",
    "checkpoint_name",
    "checkpoint_sums",
]
