"""The tokenizers of source and target, and their files in a run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from regard.translation import checksums
from regard.translation.runs.layout import TOKENIZERS, UNSEEN
from regard.translation.text.tokenizer import Tokenizer

_PIECES = TypeAdapter(frozenset[str])
_LARGEST_FILE = 64 * 2**20


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the source and the target; the same object when they are joint.

    Attributes:
        unseen: the source pieces that occur in no training source; empty where that was not recorded.
    """

    source: Tokenizer
    target: Tokenizer
    unseen: frozenset[str] = frozenset()

    @classmethod
    def open(cls, folder: Path, joint: bool, sums: Mapping[str, str]) -> Tokenizers:
        """The tokenizers of a folder, checked against its checksums where there are any."""
        names = TOKENIZERS[:1] if joint else TOKENIZERS[1:]
        opened = [Tokenizer.open(folder / name, sums.get(name)) for name in names]
        path, found = folder / UNSEEN, frozenset[str]()
        if UNSEEN in sums or path.exists():  # runs of earlier versions have none
            content = checksums.content(path, sums.get(UNSEEN), _LARGEST_FILE)
            found = checksums.parsed(_PIECES, content, path, "a list of pieces")
        return cls(opened[0], opened[-1], found)

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, bytes]:
        """The files that `open` reads, by name; the tokenizers come first."""
        both = {TOKENIZERS[1]: self.source.model, TOKENIZERS[2]: self.target.model}
        models = {TOKENIZERS[0]: self.source.model} if self.joint else both
        unseen = json.dumps(sorted(self.unseen), ensure_ascii=False) + "\n"
        return {**models, UNSEEN: unseen.encode()}
