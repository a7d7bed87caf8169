"""Foreign vocabularies in our numbering."""

from __future__ import annotations

from dataclasses import dataclass

from regard.interop.huggingface.configuration import short
from regard.translation.text.tokenizer import BOS


@dataclass(frozen=True)
class VocabularyMap:
    """A vocabulary in our numbering: padding, unknown, begin, end, then the other pieces in their own order.

    Foreign models may begin a translation with padding or another piece. Our begin piece is then a copy of that row,
    and a search can never write it.

    Attributes:
        rows: for each of our ids the id in the foreign files.
        names: for each of our ids its piece.
        copied: whether our begin piece is a copy of another row.
    """

    rows: list[int]
    names: list[str]
    copied: bool

    @classmethod
    def of(
        cls,
        table: dict[str, int],
        size: int,
        *,
        pad: int,
        start: int,
        end: int,
        unknown: str = "<unk>",
    ) -> VocabularyMap:
        """From a foreign table of ids, the name of its unknown piece, and its special ids.

        Raises:
            ValueError: an id is not below `size` or occurs twice, or special ids are equal.
        """
        named: dict[int, str] = {}
        for name, id in table.items():
            if not 0 <= id < size:
                raise ValueError(
                    f"{short(name)} has the id {short(id)}, the embedding has rows 0 to {size - 1}"
                )
            if id in named:
                raise ValueError(f"{short(name)} and {short(named[id])} have the same id, {id}")
            named[id] = name
        if unknown not in table:
            raise ValueError(f"it has no {unknown}")
        for what, id in (("pad", pad), ("decoder_start", start), ("eos", end)):
            if not 0 <= id < size:
                raise ValueError(f"{what}_token_id is {id}, the embedding has rows 0 to {size - 1}")
        others = [pad, table[unknown], end]
        if len(set(others)) < 3:
            raise ValueError("padding, unknown and end must be three ids")
        special = [pad, table[unknown], start, end]
        rows = [*special, *(id for id in range(size) if id not in special)]
        names = [named.get(id, f"<{id}>") for id in rows]
        copied = start in others
        if copied:
            free = [name for name in ("<s>", "<start>", "<regard:start>") if name not in names]
            if not free:
                raise ValueError(
                    "<s>, <start> and <regard:start> are pieces: our begin piece needs one of these names"
                )
            names[BOS] = free[0]
        if len(set(names)) < len(names):
            raise ValueError(
                "a piece has a name such as <17>, which stands for an id without a piece"
            )
        return cls(rows, names, copied)
