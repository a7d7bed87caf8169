"""Foreign vocabularies in our numbering, and foreign sentencepiece files as tokenizers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import sentencepiece

from regard.errors import ModelError, one_line
from regard.interop.huggingface import sentencepiece_check
from regard.interop.huggingface.configuration import LARGEST_FILE, HuggingFaceConfiguration, short
from regard.translation import checksums
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import BOS, EOS, UNK, Tokenizer


@dataclass(frozen=True)
class VocabularyMap:
    """A vocabulary in our numbering: padding, unknown, begin, end, then the other pieces in their own order.

    Foreign models may begin a translation with padding or another piece. Our begin piece is then a copy of that row,
    and a search can never write it.

    Attributes:
        rows: for each of our ids the id in the foreign files.
        names: for each of our ids its piece.
        ids: the id of each piece; neither special ids nor rows without a piece.
        copied: whether our begin piece is a copy of another row.
    """

    rows: list[int]
    names: list[str]
    ids: dict[str, int]
    copied: bool

    @classmethod
    def of(
        cls,
        path: Path,
        table: dict[str, int],
        size: int,
        configuration: HuggingFaceConfiguration,
        unknown: str = "<unk>",
    ) -> VocabularyMap:
        """From the ids of pieces in a file, the rows of the embedding, and the name of the unknown piece."""

        def fault(why: str) -> ModelError:
            return ModelError(f"{path}: {why}")

        pad, start, end = (
            configuration.pad_token_id,
            configuration.decoder_start_token_id,
            configuration.eos_token_id,
        )
        named: dict[int, str] = {}
        for name, id in table.items():
            if type(id) is not int:
                raise fault(f"{short(name)} has no whole number as its id")
            if not 0 <= id < size:
                raise fault(
                    f"{short(name)} has the id {short(id)}, the embedding has rows 0 to {size - 1}"
                )
            if id in named:
                raise fault(f"{short(name)} and {short(named[id])} have the same id, {id}")
            named[id] = name
        if unknown not in table:
            raise fault(f"it has no {unknown}")
        for role, id in (("pad", pad), ("decoder_start", start), ("eos", end)):
            if not 0 <= id < size:
                raise fault(f"{role}_token_id is {id}, the embedding has rows 0 to {size - 1}")
        distinct = [pad, table[unknown], end]
        if len(set(distinct)) < 3:
            raise fault("padding, unknown and end must be three ids")
        special = [pad, table[unknown], start, end]
        rows = [*special, *(id for id in range(size) if id not in special)]
        names = [named.get(id, f"<{id}>") for id in rows]
        copied = start in distinct
        if copied:
            free = [name for name in ("<s>", "<start>", "<regard:start>") if name not in names]
            if not free:
                raise fault(
                    "<s>, <start> and <regard:start> are pieces: our begin piece needs one of these names"
                )
            names[BOS] = free[0]
        if len(set(names)) < len(names):
            raise fault("a piece has a name such as <17>, which stands for an id without a piece")
        ids = {names[id]: id for id, row in enumerate(rows) if id > EOS and row in named}
        return cls(rows, names, ids, copied)


class NumberedTokenizer(Tokenizer):
    """A sentencepiece model whose pieces are numbered by a table (see `VocabularyMap`).

    Text is normalised as for our tokenizers, then by the map in the file. Pieces outside the table become the
    unknown id. Text never becomes a special id. Rows without a piece are named <number> and have no text.
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
        self._names, self._ids = words.names, words.ids
        self._known = frozenset(words.ids.values())

    @classmethod
    def read(cls, path: Path, words: VocabularyMap) -> Self:
        """The tokenizer of a file. Raises `ModelError` naming it when it cannot be used."""
        return cls(checksums.content(path, None, LARGEST_FILE), words, str(path))

    def __len__(self) -> int:
        return len(self._names)

    def encode(self, text: str) -> list[int]:
        """The ids of a text after the prefix, without begin and end; none for an empty text."""
        ids = self._numbered(text)
        return [*self.prefix, *ids] if ids else ids

    def prefixed(self, text: str) -> Self:
        """The same tokenizer with a prefix before each text, such as "translate English to German:"."""
        twin = copy.copy(self)
        twin.prefix = tuple(self._numbered(text))
        return twin

    def _numbered(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK) for piece in self._cut(normalise(text))]

    def _knows(self, name: str) -> bool:
        return name in self._ids

    def _text(self, ids: Sequence[int]) -> str:
        names = [self._names[int(id)] for id in ids if int(id) in self._known]
        return str(self._pieces.decode_pieces(names).replace("\u2581", " "))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._names[int(id)] for id in ids]
