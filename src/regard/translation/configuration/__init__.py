"""Configurations: TOML, typed, every key checked before anything else happens."""

from regard.translation.configuration.data import (
    DataSection,
    FilesSection,
    GeneratedSection,
    TokenizerSection,
    check_tag,
    language_tag,
)
from regard.translation.configuration.reading import LARGEST_FILE, decode, parse, read
from regard.translation.configuration.recurrent import RecurrentSettings
from regard.translation.configuration.search import Search, SearchSettings
from regard.translation.configuration.training import (
    FREE_ON_RESUME,
    GuideSection,
    TrainingSection,
)
from regard.translation.configuration.transformer import TransformerSettings
from regard.translation.configuration.whole import Configuration
from regard.translation.configuration.writing import differences, dump

__all__ = [
    "Configuration",
    "DataSection",
    "FREE_ON_RESUME",
    "FilesSection",
    "GeneratedSection",
    "GuideSection",
    "LARGEST_FILE",
    "RecurrentSettings",
    "Search",
    "SearchSettings",
    "TokenizerSection",
    "TrainingSection",
    "TransformerSettings",
    "check_tag",
    "decode",
    "differences",
    "dump",
    "language_tag",
    "parse",
    "read",
]
