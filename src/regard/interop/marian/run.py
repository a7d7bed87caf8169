"""A folder of a Marian model as a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import ModelError
from regard.interop.huggingface.configuration import read_table, short
from regard.interop.huggingface.run import HuggingFaceRun, run_configuration
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.marian import reading
from regard.interop.marian.configuration import MarianConfiguration
from regard.interop.marian.tokenizer import MarianTokenizer
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers


@dataclass(frozen=True)
class MarianRun(HuggingFaceRun):
    """A folder of MarianMTModel.save_pretrained and MarianTokenizer.save_pretrained."""

    marian: MarianConfiguration

    @classmethod
    def open(cls, folder: Path) -> MarianRun:
        """Raises `ModelError` unless the folder is a Marian model's."""
        found = MarianConfiguration.read(folder)
        described = read_table(folder / "tokenizer_config.json", missing={})
        languages = [described.get(f"{side}_lang") for side in ("source", "target")]
        source, target = (name if isinstance(name, str) else "unknown" for name in languages)
        configuration = run_configuration(
            found, found.settings(), joint=False, source=source, target=target
        )
        return cls(folder, configuration, found)

    def tokenizers(self) -> Tokenizers:
        source, target = self.words()
        return Tokenizers(
            MarianTokenizer.read(self.file("source.spm"), source),
            MarianTokenizer.read(self.file("target.spm"), target),
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
        path, found = self.file(name), self.marian
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
