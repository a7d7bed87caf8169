"""A folder of a T5 model as a run."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from regard.errors import ConfigurationError, ModelError
from regard.interop.huggingface.run import HuggingFaceRun, run_configuration
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.t5 import reading
from regard.interop.t5.configuration import T5Configuration
from regard.interop.t5.tokenizer import T5Tokenizer, prefixes, words
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers

_PIECES = "spiece.model"
_LONGEST_PREFIX = 500
# A message lists at most so many languages; of more, those with a similar code.
_MOST_LISTED = 20


@dataclass(frozen=True)
class T5Run(HuggingFaceRun):
    """A folder of T5ForConditionalGeneration.save_pretrained, with its tokenizer's spiece.model."""

    t5: T5Configuration

    @classmethod
    def open(cls, folder: Path) -> T5Run:
        """Raises `ModelError` unless the folder is a T5 model's."""
        found = T5Configuration.read(folder)
        configuration = run_configuration(found, found.settings("three_way"), joint=True)
        return cls(folder, configuration, found)

    def tokenizers(self) -> Tokenizers:
        both = T5Tokenizer.read(self.file(_PIECES), self.words)
        return Tokenizers(both, both)

    def directed(self, tokenizers: Tokenizers, to: str | None) -> Tokenizers:
        """The tokenizers with the prefix that the folder has for a language; with None, without a prefix.

        Raises:
            ConfigurationError: the folder has no prefix for that language.
            ModelError: the prefix would leave no room for a text.
        """
        if to is None:
            return tokenizers
        known = prefixes(self.words.names, self.t5.task_specific_params)
        source = tokenizers.source
        if to not in known or not isinstance(source, T5Tokenizer):
            raise ConfigurationError(
                f"--to {to}: {self.folder} names {_listed(list(known), to)}: leave it out, and begin each "
                "text with the words that the model was trained with"
            )
        if len(known[to]) > _LONGEST_PREFIX:
            raise ModelError(
                f"{self.folder}: its prefix for {to} is {len(known[to])} characters long, expected at most "
                f"{_LONGEST_PREFIX}"
            )
        return Tokenizers(source.prefixed(known[to]), tokenizers.target)

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        if len(tokenizers.source) != len(self.words.rows):
            raise ModelError(f"{self.folder}: the tokenizers given are not its own")
        return reading.read(self.folder, self.t5, self.words)

    @cached_property
    def words(self) -> VocabularyMap:
        """The vocabulary, one for source and target."""
        return words(self.file(_PIECES), self.t5)


def _listed(names: list[str], like: str) -> str:
    if len(names) > _MOST_LISTED:
        close = get_close_matches(like, names[:10_000], 5, 0.4) or names[:5]
        return f"{', '.join(close)} and {len(names) - len(close)} more"
    return ", ".join(names) or "no language"
