"""The parts that every folder of Hugging Face needs to be opened as a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import ModelError
from regard.interop.huggingface.configuration import HuggingFaceConfiguration
from regard.translation.models.transformer import TransformerSettings
from regard.translation.runs import Run
from regard.translation.settings import (
    Configuration,
    DataSettings,
    SearchSettings,
    TokenizerSettings,
)


@dataclass(frozen=True)
class HuggingFaceRun(Run):
    """A folder that `save_pretrained` wrote. Search, looks and commands use it like a run of ours.

    It searches as `generation_config.json` says. The length penalty has the same value but another formula: theirs
    divides by n^alpha, ours by ((5 + n) / 6)^alpha.
    """

    def file(self, name: str) -> Path:
        """The path of a file of the folder. Raises `ModelError` when it is missing."""
        path = self.folder / name
        if not path.is_file():
            hint = ""
            if (self.folder / "tokenizer.json").exists():
                hint = f": tokenizer.json cannot be read: put the {name} of this model beside it"
            raise ModelError(f"{self.folder}: it has no {name}{hint}")
        return path


def run_configuration(
    found: HuggingFaceConfiguration,
    settings: TransformerSettings,
    *,
    joint: bool,
    source: str = "unknown",
    target: str = "unknown",
) -> Configuration:
    """The configuration of a run, as far as a foreign folder has one: it names no corpus and no training."""
    return Configuration.model_construct(
        data=DataSettings.model_construct(source_language=source, target_language=target),
        tokenizer=TokenizerSettings(joint=joint),
        model=settings,
        search=SearchSettings(beam=found.num_beams, length_penalty=found.length_penalty),
    )
