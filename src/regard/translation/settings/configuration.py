"""A whole configuration, with the checks between its tables, and its tables by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.translation.settings.base import Settings
from regard.translation.settings.data import CorpusSettings, DataSettings, GeneratedSettings
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.search import SearchSettings
from regard.translation.settings.tokenizer import TokenizerSettings
from regard.translation.settings.training import (
    GuideSettings,
    PretrainedSettings,
    TrainingSettings,
)
from regard.translation.settings.transformer import TransformerSettings


class Configuration(Settings):
    """The settings of a model and its training."""

    version: Literal[1] = 1
    """The version of this format."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """The seed of all random numbers."""
    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: Annotated[TransformerSettings | RecurrentSettings, Field(discriminator="kind")]
    pretrained: PretrainedSettings | None = None
    training: TrainingSettings = TrainingSettings()
    search: SearchSettings = SearchSettings()

    @model_validator(mode="after")
    def _tied_needs_joint(self) -> Configuration:
        if self.model.tied in ("three_way", "embeddings") and not self.tokenizer.joint:
            raise ValueError(f'model.tied = "{self.model.tied}" needs tokenizer.joint = true')
        return self

    @model_validator(mode="after")
    def _guide_has_links_and_a_head(self) -> Configuration:
        guide, model = self.training.guide, self.model
        linked = any(files.links is not None for files in self.data.training)
        if (guide is not None) != linked:
            raise ValueError(
                "training.guide needs `links` of a corpus of data.train"
                if guide is not None
                else "data.train has `links`, but there is no [training.guide] to learn from them"
            )
        if guide is None:
            return self
        if isinstance(model, RecurrentSettings) and model.scheduled_sampling:
            raise ValueError("training.guide and model.scheduled_sampling exclude each other")
        layers = model.attending_layers
        if guide.layer >= layers:
            raise ValueError(
                f"training.guide.layer = {guide.layer}: the decoder has {layers} layers that look at the source"
            )
        if guide.head is not None and guide.head >= model.heads:
            raise ValueError(f"training.guide.head = {guide.head}: there are {model.heads} heads")
        return self

    @model_validator(mode="after")
    def _positions_reach(self) -> Configuration:
        model, longest = self.model, self.data.longest
        if not isinstance(model, TransformerSettings) or model.positions != "learned":
            return self
        if model.longest <= longest:
            raise ValueError(
                f"model.longest = {model.longest} must be above data.longest = {longest}: "
                "the model learns no positions beyond"
            )
        return self


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
