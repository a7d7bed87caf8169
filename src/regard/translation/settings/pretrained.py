"""The settings of pretrained word vectors, as in the `[pretrained]` table."""

from __future__ import annotations

from pydantic import model_validator

from regard.translation.settings.base import Settings


class PretrainedSettings(Settings):
    """Word vectors to begin with: files in the text format of word2vec and fastText, or safetensors."""

    source: str | None = None
    """Word vectors of the source embedding."""
    target: str | None = None
    """Word vectors of the target embedding."""
    frozen: bool = False
    """Whether the embeddings that have a file keep its vectors during training."""

    @model_validator(mode="after")
    def _of_something(self) -> PretrainedSettings:
        if self.source is None and self.target is None:
            raise ValueError("give `source`, `target` or both: files of word vectors")
        return self

    @property
    def names(self) -> list[str]:
        """The files as the configuration names them."""
        return [name for name in (self.source, self.target) if name is not None]
