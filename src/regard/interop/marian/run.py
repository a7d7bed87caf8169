"""A Hugging Face folder as a run: what opens, translates and looks needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import ModelError
from regard.interop.huggingface.configuration import read_table, short
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.marian import reading
from regard.interop.marian.configuration import MarianConfiguration
from regard.interop.marian.tokenizer import MarianTokenizer
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run, Tokenizers
from regard.translation.settings import (
    Configuration,
    DataSettings,
    SearchSettings,
    TokenizerSettings,
)


@dataclass(frozen=True)
class MarianRun(Run):
    """A folder of MarianMTModel.save_pretrained and MarianTokenizer.save_pretrained.

    Its configuration says what such a folder tells: how to search, and the languages where they are named. The length
    penalty is theirs in number; theirs divides by n^alpha, ours by ((5 + n) / 6)^alpha.
    """

    marian: MarianConfiguration

    @classmethod
    def open(cls, folder: Path) -> MarianRun:
        """Raises `ModelError` unless the folder is a Marian model's."""
        found = MarianConfiguration.read(folder)
        described = read_table(folder / "tokenizer_config.json", missing={})
        languages = [described.get(f"{side}_lang") for side in ("source", "target")]
        source, target = (name if isinstance(name, str) else "unknown" for name in languages)
        # Not checked as one of ours is: it has no corpus, and no training.
        configuration = Configuration.model_construct(
            data=DataSettings.model_construct(source_language=source, target_language=target),
            tokenizer=TokenizerSettings(joint=False),
            model=found.settings(),
            search=SearchSettings(beam=found.num_beams, length_penalty=found.length_penalty),
        )
        return cls(folder, configuration, found)

    def tokenizers(self) -> Tokenizers:
        source, target = self.words()
        return Tokenizers(
            MarianTokenizer.read(self._file("source.spm"), source),
            MarianTokenizer.read(self._file("target.spm"), target),
        )

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        source, target = self.words()
        sizes = (len(tokenizers.source), len(tokenizers.target))
        if sizes != (len(source.rows), len(target.rows)):
            raise ModelError(f"{self.folder}: the tokenizers given are not its own")
        return reading.read(self.folder, self.marian, source, target)

    def words(self) -> tuple[VocabularyMap, VocabularyMap]:
        """The vocabularies of source and target."""
        found = self.marian
        shared = self._words("vocab.json", found.vocab_size)
        if not (self.folder / "target_vocab.json").exists() and (
            found.share_encoder_decoder_embeddings or found.target_size == found.vocab_size
        ):
            return shared, shared
        return shared, self._words("target_vocab.json", found.target_size)

    def _words(self, name: str, size: int) -> VocabularyMap:
        path, found = self._file(name), self.marian
        table = read_table(path)
        try:
            for piece, id in table.items():
                if type(id) is not int:
                    raise ValueError(f"{short(piece)} has no whole number as its id")
            return VocabularyMap.of(
                table,
                size,
                pad=found.pad_token_id,
                start=found.decoder_start_token_id,
                end=found.eos_token_id,
            )
        except ValueError as fault:
            raise ModelError(f"{path}: {fault}") from None

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            hint = ""
            if (self.folder / "tokenizer.json").exists():
                hint = (
                    ": it has a tokenizer.json, which is not read: save the MarianTokenizer of "
                    "this model beside it"
                )
            raise ModelError(f"{self.folder}: it has no {name}{hint}")
        return path
