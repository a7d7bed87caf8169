"""A T5 folder as a run: what opens, translates and looks needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from regard.errors import ConfigurationError, ModelError
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.t5 import reading
from regard.interop.t5.configuration import T5Configuration
from regard.interop.t5.tokenizer import T5Tokenizer, prefixes, words
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run, Tokenizers
from regard.translation.settings import (
    Configuration,
    DataSettings,
    SearchSettings,
    TokenizerSettings,
)

_PIECES = "spiece.model"
_LONGEST_PREFIX = 500
# So many languages are listed; of more those that are spelt alike.
_MOST_LISTED = 20


@dataclass(frozen=True)
class T5Run(Run):
    """A folder of T5ForConditionalGeneration.save_pretrained, with its tokenizer's spiece.model.

    Its configuration says how to search. The length penalty is theirs in number; theirs divides by n^alpha, ours by
    ((5 + n) / 6)^alpha.
    """

    t5: T5Configuration

    @classmethod
    def open(cls, folder: Path) -> T5Run:
        """Raises `ModelError` unless the folder is a T5 model's."""
        found = T5Configuration.read(folder)
        # Not checked as one of ours is: it has no corpus, and no training.
        configuration = Configuration.model_construct(
            data=DataSettings.model_construct(source_language="unknown", target_language="unknown"),
            tokenizer=TokenizerSettings(joint=True),
            model=found.settings("three_way"),
            search=SearchSettings(beam=found.num_beams, length_penalty=found.length_penalty),
        )
        return cls(folder, configuration, found)

    def tokenizers(self) -> Tokenizers:
        both = T5Tokenizer.read(self._file(), self.words)
        return Tokenizers(both, both)

    def directed(self, tokenizers: Tokenizers, to: str | None) -> Tokenizers:
        """For sentences that begin with what the folder says before those of a language; with None, as they are.

        Raises:
            ConfigurationError: the folder says nothing of that language.
            ModelError: what it says would leave no room for a text.
        """
        if to is None:
            return tokenizers
        known = prefixes(self.words.names, self.t5.task_specific_params)
        source = tokenizers.source
        if to not in known or not isinstance(source, T5Tokenizer):
            raise ConfigurationError(
                f"--to {to}: {self.folder} names {_listed(list(known), to)}: leave it out, and begin each "
                "text with what the model was trained to be told"
            )
        if len(known[to]) > _LONGEST_PREFIX:
            raise ModelError(
                f"{self.folder}: what it says before texts for {to} is {len(known[to])} characters long, "
                f"expected at most {_LONGEST_PREFIX}"
            )
        return Tokenizers(source.prefixed(known[to]), tokenizers.target)

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        if len(tokenizers.source) != len(self.words.rows):
            raise ModelError(f"{self.folder}: the tokenizers given are not its own")
        return reading.read(self.folder, self.t5, self.words)

    @cached_property
    def words(self) -> VocabularyMap:
        """The vocabulary, one for source and target."""
        return words(self._file(), self.t5)

    def _file(self) -> Path:
        path = self.folder / _PIECES
        if not path.is_file():
            hint = ""
            if (self.folder / "tokenizer.json").exists():
                hint = f": it has a tokenizer.json, which is not read: put the {_PIECES} of this model beside it"
            raise ModelError(f"{self.folder}: it has no {_PIECES}{hint}")
        return path


def _listed(names: list[str], like: str) -> str:
    if len(names) > _MOST_LISTED:
        close = get_close_matches(like, names[:10_000], 5, 0.4) or names[:5]
        return f"{', '.join(close)} and {len(names) - len(close)} more"
    return ", ".join(names) or "no language"
