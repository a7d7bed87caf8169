"""Settings: one class for each component, read from TOML files or made in Python, and checked when made."""

from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import CorpusSettings, DataSettings
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.search import Search, SearchSettings
from regard.translation.settings.toml import (
    LARGEST_FILE,
    decode,
    differences,
    dump,
    parse,
    read,
)
from regard.translation.settings.training import GuideSettings, TokenizerSettings, TrainingSettings
from regard.translation.settings.transformer import TransformerSettings

__all__ = [
    "Configuration",
    "DataSettings",
    "CorpusSettings",
    "GuideSettings",
    "LARGEST_FILE",
    "RecurrentSettings",
    "Search",
    "SearchSettings",
    "TokenizerSettings",
    "TrainingSettings",
    "TransformerSettings",
    "decode",
    "differences",
    "dump",
    "parse",
    "read",
]
