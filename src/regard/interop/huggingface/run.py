"""A folder of Hugging Face as a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.errors import ModelError
from regard.interop.huggingface.tokenizer import VocabularyMap
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer import Transformer
from regard.translation.runs import Run, Tokenizers


@dataclass(frozen=True)
class HuggingFaceRun(Run):
    """A folder that `save_pretrained` wrote. Search, looks and commands use it like a run of ours.

    It searches as `generation_config.json` says. The length penalty has the same value but another formula: theirs
    divides by n^alpha, ours by ((5 + n) / 6)^alpha.
    """

    @cached_property
    def words(self) -> tuple[VocabularyMap, VocabularyMap]:
        """The vocabularies of source and target."""
        raise NotImplementedError

    def read(self) -> Transformer:
        """The model of the folder.

        Raises:
            ModelError: there is no file of weights that is safe to read, or a tensor is missing, unknown, of another
                shape than config.json says, or not finite.
        """
        raise NotImplementedError

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        given = [len(tokenizers.source), len(tokenizers.target)]
        if given != [len(words.rows) for words in self.words]:
            raise ModelError(f"{self.folder}: the tokenizers given are not its own")
        return self.read()

    def file(self, name: str) -> Path:
        """The path of a file of the folder. Raises `ModelError` when it is missing."""
        path = self.folder / name
        if not path.is_file():
            hint = ""
            if (self.folder / "tokenizer.json").exists():
                hint = f": tokenizer.json cannot be read: put the {name} of this model beside it"
            raise ModelError(f"{self.folder}: it has no {name}{hint}")
        return path
