"""What a model has read: sentence pairs, and the states of its decoder before each of their target tokens."""

from regard.translation.datastore.folder import Datastore, Mixing
from regard.translation.datastore.space import Space

__all__ = ["Datastore", "Mixing", "Space"]
