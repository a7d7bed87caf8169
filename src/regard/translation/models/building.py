"""A model from its configuration."""

from __future__ import annotations

from dataclasses import fields

from regard.translation.configuration import Configuration, RecurrentSection
from regard.translation.errors import ConfigurationError
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.recurrent.settings import RecurrentConfiguration
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.text.tokenizer import PAD


def build(
    configuration: Configuration, source_vocabulary: int, target_vocabulary: int
) -> TranslationModel:
    """The model a configuration describes, freshly drawn.

    Raises `ConfigurationError` when its parts do not fit together.
    """
    try:
        return _build(configuration, source_vocabulary, target_vocabulary)
    except ValueError as fault:
        raise ConfigurationError(f"model: {fault}") from None


def _build(
    configuration: Configuration, source_vocabulary: int, target_vocabulary: int
) -> TranslationModel:
    section = configuration.model
    given = section.model_dump(exclude={"kind"})
    if isinstance(section, RecurrentSection):
        names = {field.name for field in fields(RecurrentConfiguration)}
        settings = RecurrentConfiguration(**{k: v for k, v in given.items() if k in names})
        return RecurrentModel(settings, source_vocabulary, target_vocabulary, PAD)
    return Transformer(TransformerSettings(**given), source_vocabulary, target_vocabulary, PAD)
