"""Sentence pairs in a folder, each once, and which of their sources are most similar to a text."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from regard.errors import CorruptedError, ModelError, raised_as
from regard.memory import MemoryFileError
from regard.memory.records import Kind
from regard.memory.store import Store
from regard.tensor_files import TensorFileError
from regard.translation.datastore.similarity import WordIndex

_DIGEST = 12  # bytes
_KIND = ("uint8", _DIGEST)
_AT_A_TIME = 4096  # pairs that are written or read together


class Example(NamedTuple):
    """A sentence pair that was read."""

    source: str
    target: str


class Sentences:
    """A memory whose keys are digests of the pairs, and whose payloads are the pairs.

    Args:
        folder: of the memory.
        write: whether pairs may be added, by one process at a time.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self._store = Store(folder, write=write)
        self.folder, self.close = folder, self._store.close
        if len(self) and self._store.state.keys != _KIND:
            self.close()
            raise ModelError(
                f"{folder}: was made by an earlier version: remove it, and make it again with `regard remember`"
            )

    def __len__(self) -> int:
        return self._store.state.rows

    def add(self, pairs: Sequence[tuple[str, str]]) -> int:
        """Write the pairs that are not there, in this order; their number."""
        blocks = (self._store.vectors("keys").read(*span) for span in self._store.spans())
        stored = {bytes(row) for rows in blocks for row in rows.numpy()}
        digests = {_digest(pair): pair for pair in pairs}
        missing = [(key, pair) for key, pair in digests.items() if key not in stored]
        for start in range(0, len(missing), _AT_A_TIME):
            keys, examples = zip(*missing[start : start + _AT_A_TIME], strict=True)
            rows = torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8).view(-1, _DIGEST)
            kinds: dict[str, Kind | None] = {"keys": _KIND, "values": None}
            self._store.append(rows, None, list(map(list, examples)), None, kinds)
        vars(self).pop("index", None)
        return len(missing)

    def pair(self, number: int) -> Example:
        (example,) = self.pairs(number, number + 1)
        return example

    def pairs(self, start: int = 0, stop: int | None = None) -> Iterator[Example]:
        """The pairs from a number on, up to before another one."""
        end = len(self) if stop is None else stop
        for begin in range(start, end, _AT_A_TIME):
            entries = self._store.entries(begin, min(begin + _AT_A_TIME, end))
            for number, (_, payload) in enumerate(entries, begin):
                if not (isinstance(payload, list) and len(payload) == 2):
                    raise CorruptedError(f"{self.folder}: pair {number} is damaged")
                yield Example(*payload)

    @cached_property
    def index(self) -> WordIndex:
        """The pairs by the words of their sources."""
        return WordIndex(pair.source for pair in self.pairs())


@contextmanager
def blaming(folder: Path) -> Iterator[None]:
    """Say in our words that a folder cannot be read or written."""
    try:
        with raised_as(ModelError, f"{folder}: cannot be read or written"):
            yield
    except (MemoryFileError, TensorFileError) as fault:
        raise CorruptedError(str(fault)) from None


def _digest(pair: tuple[str, str]) -> bytes:
    return hashlib.blake2b("\t".join(pair).encode(), digest_size=_DIGEST).digest()
