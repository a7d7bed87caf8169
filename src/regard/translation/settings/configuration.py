"""A whole configuration, with the checks between its tables, and its tables by name."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regard.errors import ConfigurationError
from regard.translation.settings.base import Settings
from regard.translation.settings.data import (
    CorpusSettings,
    DataSettings,
    DistillationSettings,
    GeneratedSettings,
    NoiseSettings,
)
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.search import SearchSettings
from regard.translation.settings.training import GuideSettings, TokenizerSettings, TrainingSettings
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
    pretrained: Annotated[dict[str, Any] | None, Field(deprecated="removed")] = None
    """Word vectors, which Regard 0.2 read. Models that were trained with them still open."""
    training: TrainingSettings = TrainingSettings()
    search: SearchSettings = SearchSettings()

    def check_vectors(self, *, resumed: bool = False) -> None:
        """Raise `ConfigurationError` for a training with word vectors. One that is resumed needs only frozen ones."""
        vectors = self.__dict__["pretrained"]
        if vectors is not None and (not resumed or vectors.get("frozen")):
            raise ConfigurationError(
                "[pretrained]: word vectors are no longer read: leave the table out, or train with Regard 0.2"
            )

    def faults(self) -> Iterator[str]:
        model, guide, longest = self.model, self.training.guide, self.data.longest
        if model.tied in ("three_way", "embeddings") and not self.tokenizer.joint:
            yield f'model.tied = "{model.tied}" needs tokenizer.joint = true'
        if isinstance(model, TransformerSettings) and model.positions == "learned":
            positions = model.longest
            if positions <= longest:
                yield (
                    f"model.longest = {positions} must be above data.longest = {longest}: "
                    "the model learns no positions beyond"
                )
        if guide is None:
            if any(files.links is not None for files in self.data.training):
                yield "data.train has `links`, but there is no [training.guide] to learn from them"
            return
        if isinstance(model, RecurrentSettings) and model.scheduled_sampling:
            yield "training.guide and model.scheduled_sampling exclude each other"
        layers = model.attending_layers
        if guide.layer >= layers:
            yield f"training.guide.layer = {guide.layer}: the decoder has {layers} layers that look at the source"
        if guide.head is not None and guide.head >= model.heads:
            yield f"training.guide.head = {guide.head}: there are {model.heads} heads"


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
    "data.noise": (NoiseSettings,),
    "data.distillation": (DistillationSettings,),
    "tokenizer": (TokenizerSettings,),
    "model": tuple(MODELS.values()),
    "training": (TrainingSettings,),
    "training.guide": (GuideSettings,),
    "search": (SearchSettings,),
}
