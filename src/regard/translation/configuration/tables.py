"""The tables of a configuration file, by the name in their header."""

from __future__ import annotations

from regard.translation.configuration.data import (
    DataSection,
    FilesSection,
    GeneratedSection,
    PretrainedSection,
    TokenizerSection,
)
from regard.translation.configuration.recurrent import RecurrentSettings
from regard.translation.configuration.search import SearchSettings
from regard.translation.configuration.section import Section
from regard.translation.configuration.training import GuideSection, TrainingSection
from regard.translation.configuration.transformer import TransformerSettings
from regard.translation.configuration.whole import Configuration

MODELS: dict[str, type[Section]] = {
    "transformer": TransformerSettings,
    "recurrent": RecurrentSettings,
}

# `model` has one class for each `model.kind`; every other table has one class.
TABLES: dict[str, tuple[type[Section], ...]] = {
    "": (Configuration,),
    "data": (DataSection,),
    "data.train": (FilesSection,),
    "data.valid": (FilesSection,),
    "data.generated": (GeneratedSection,),
    "tokenizer": (TokenizerSection,),
    "model": tuple(MODELS.values()),
    "pretrained": (PretrainedSection,),
    "training": (TrainingSection,),
    "training.guide": (GuideSection,),
    "search": (SearchSettings,),
}
