"""Configurations: TOML, typed, every key checked before anything else happens."""

from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import (
    CorpusSettings,
    DataSettings,
    GeneratedSettings,
    TokenizerSettings,
    check_tag,
    language_tag,
)
from regard.translation.settings.reading import LARGEST_FILE, decode, parse, read
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.search import Search, SearchSettings
from regard.translation.settings.training import (
    FREE_ON_RESUME,
    GuideSettings,
    TrainingSettings,
)
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.settings.writing import differences, dump

__all__ = [
    "Configuration",
    "DataSettings",
    "FREE_ON_RESUME",
    "CorpusSettings",
    "GeneratedSettings",
    "GuideSettings",
    "LARGEST_FILE",
    "RecurrentSettings",
    "Search",
    "SearchSettings",
    "TokenizerSettings",
    "TrainingSettings",
    "TransformerSettings",
    "check_tag",
    "decode",
    "differences",
    "dump",
    "language_tag",
    "parse",
    "read",
]
