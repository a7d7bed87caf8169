"""Marian's tokenizer: sentencepiece cuts, a table of its own numbers the pieces, and we number them as we do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from regard.interop.marian import pieces
from regard.translation.errors import ModelError
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import BOS, EOS, UNK, Tokenizer

_LARGEST_FILE = 64 * 2**20
# What a multilingual model is told to write: ">>fra<<" before the text.
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Words:
    """A vocabulary in our numbering: padding, unknown, begin, end, then theirs in their order.

    Marian begins a translation with padding. Ours has a beginning of its own, which is then a copy of that row and
    can never be written.

    Attributes:
        rows: for each of our ids the id in their files.
        names: its piece.
        copied: whether our beginning is a copy of another row.
    """

    rows: list[int]
    names: list[str]
    copied: bool

    @classmethod
    def of(cls, table: dict[str, int], size: int, *, pad: int, start: int, end: int) -> Words:
        """From their table of ids and their special ids, all of which must be below `size`.

        Raises:
            ValueError: ids that are not of the vocabulary, that stand twice, or specials that are one another.
        """
        named: dict[int, str] = {}
        for name, id in table.items():
            if not 0 <= id < size:
                raise ValueError(
                    f"{name!r} has the id {id}, the embedding has rows 0 to {size - 1}"
                )
            if id in named:
                raise ValueError(f"{name!r} and {named[id]!r} have one id, {id}")
            named[id] = name
        if "<unk>" not in table:
            raise ValueError("it has no <unk>")
        unknown = table["<unk>"]
        for what, id in (("pad", pad), ("decoder_start", start), ("eos", end)):
            if not 0 <= id < size:
                raise ValueError(f"{what}_token_id is {id}, the embedding has rows 0 to {size - 1}")
        if len({pad, unknown, end}) < 3 or start == unknown:
            raise ValueError(
                "padding, unknown and end must be three ids, and the start not unknown"
            )
        special = [pad, unknown, start, end]
        rows = [*special, *(id for id in range(size) if id not in special)]
        names = [named.get(id, f"<{id}>") for id in rows]
        copied = start in (pad, end)
        if copied:
            free = [name for name in ("<s>", "<start>", "<regard:start>") if name not in names]
            if not free:
                raise ValueError(
                    "<s>, <start> and <regard:start> are pieces: no name is left for ours"
                )
            names[BOS] = free[0]
        if len(set(names)) < len(names):
            raise ValueError("a piece is named as an id without a name is")
        return cls(rows, names, copied)


class MarianTokenizer(Tokenizer):
    """A sentencepiece model whose pieces are numbered by a table (see `Words`).

    Text is normalised as all of ours, then by the map in the file. What is in no table is unknown; no text becomes a
    special id. A language code before the text, ">>fra<<", is one piece where the table has it.
    """

    def __init__(self, model: bytes, words: Words, name: str) -> None:
        pieces.check(model, name)
        self.model = model
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError) as fault:
            raise ModelError(
                f"{name}: not a usable sentencepiece model: {' '.join(str(fault).split())[:200]}"
            ) from None
        self._names = words.names
        self._ids = {name: id for id, name in enumerate(words.names) if id > EOS}

    @classmethod
    def read(cls, path: Path, words: Words) -> MarianTokenizer:
        """The tokenizer of a file. Raises `ModelError` naming it when it cannot be used."""
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ModelError(f"{path}: larger than {_LARGEST_FILE} bytes, no tokenizer")
            return cls(path.read_bytes(), words, str(path))
        except OSError as fault:
            raise ModelError(f"{path}: cannot be read: {fault.strerror}") from None

    def __len__(self) -> int:
        return len(self._names)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin and end."""
        text = normalise(text)
        code: list[int] = []
        found = _LANGUAGE.fullmatch(text)
        if found is not None and found[1] in self._ids:
            code, text = [self._ids[found[1]]], found[2]
        cut = self._pieces.encode(text, out_type=str)
        return code + [self._ids.get(piece, UNK) for piece in cut]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ones are left out."""
        kept = [self._names[int(id)] for id in ids if EOS < id < len(self)]
        return normalise(self._pieces.decode_pieces(kept).replace("\u2581", " "))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces behind ids."""
        return [self._names[int(id)] for id in ids]
