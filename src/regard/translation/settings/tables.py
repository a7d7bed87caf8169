"""The tables of a configuration file, by the name in their header."""

from __future__ import annotations

from regard.translation.settings.base import Settings
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import (
    CorpusSettings,
    DataSettings,
    GeneratedSettings,
)
from regard.translation.settings.pretrained import PretrainedSettings
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.search import SearchSettings
from regard.translation.settings.tokenizer import TokenizerSettings
from regard.translation.settings.training import GuideSettings, TrainingSettings
from regard.translation.settings.transformer import TransformerSettings

MODELS: dict[str, type[Settings]] = {
    "transformer": TransformerSettings,
    "recurrent": RecurrentSettings,
}

# `model` has one class for each `model.kind`; every other table has one class.
TABLES: dict[str, tuple[type[Settings], ...]] = {
    "": (Configuration,),
    "data": (DataSettings,),
    "data.train": (CorpusSettings,),
    "data.valid": (CorpusSettings,),
    "data.generated": (GeneratedSettings,),
    "tokenizer": (TokenizerSettings,),
    "model": tuple(MODELS.values()),
    "pretrained": (PretrainedSettings,),
    "training": (TrainingSettings,),
    "training.guide": (GuideSettings,),
    "search": (SearchSettings,),
}
