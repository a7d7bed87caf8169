"""Foreign sentencepiece files as tokenizers, with the pieces in our numbering."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import sentencepiece

from regard.errors import ModelError, one_line, raised_as
from regard.interop.huggingface import sentencepiece_check
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import EOS, UNK, Tokenizer

_LARGEST_FILE = 64 * 2**20


class NumberedTokenizer(Tokenizer):
    """A sentencepiece model whose pieces are numbered by a table (see `VocabularyMap`).

    Text is normalised as for our tokenizers, then by the map in the file. Pieces outside the table become the
    unknown id. Text never becomes a special id.
    """

    def __init__(self, model: bytes, words: VocabularyMap, name: str) -> None:
        sentencepiece_check.check(model, name)
        self.model = model
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError) as fault:
            raise ModelError(
                f"{name}: not a usable sentencepiece model: {one_line(fault)}"
            ) from None
        self._names = words.names
        self._ids = {name: id for id, name in enumerate(words.names) if id > EOS}

    @classmethod
    def read(cls, path: Path, words: VocabularyMap) -> Self:
        """The tokenizer of a file. Raises `ModelError` naming it when it cannot be used."""
        return cls(read_bytes(path), words, str(path))

    def __len__(self) -> int:
        return len(self._names)

    def encode(self, text: str) -> list[int]:
        """The ids of a text after the prefix, without begin and end; none for an empty text."""
        ids = self._numbered(text)
        return [*self.prefix, *ids] if ids else ids

    def _numbered(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK) for piece in self._cut(normalise(text))]

    def _knows(self, name: str) -> bool:
        return name in self._ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ones are left out."""
        kept = [self._names[int(id)] for id in ids if EOS < id < len(self)]
        return normalise(self._pieces.decode_pieces(kept).replace("\u2581", " "))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces behind ids."""
        return [self._names[int(id)] for id in ids]


def read_bytes(path: Path) -> bytes:
    """The content of a tokenizer's file. Raises `ModelError` when it cannot be read or is too large."""
    with raised_as(ModelError, f"{path}: cannot be read"):
        if path.stat().st_size > _LARGEST_FILE:
            raise ModelError(f"{path}: larger than {_LARGEST_FILE} bytes, no tokenizer")
        return path.read_bytes()
