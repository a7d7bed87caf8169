"""Datastores made and tuned: a model reads the translations of a corpus, and its states are kept."""

from regard.translation.remembering.building import remember
from regard.translation.remembering.tuning import Trial, tune

__all__ = ["Trial", "remember", "tune"]
