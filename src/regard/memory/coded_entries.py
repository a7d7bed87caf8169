"""Entries with their codes, as bounded readings need them: in RAM, and in a folder."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.attention.caches import GrowingTensor
from regard.memory.bounded import Block, spread
from regard.memory.codes import coded
from regard.memory.records import CODES
from regard.memory.store import Store

AT_ONCE = 1 << 15  # entries that are coded, or whose codes are read, at a time


class CodedEntries:
    """Keys in RAM with their codes, for bounded readings: for as long as no key or value changes."""

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self.width = key.shape[-1]
        self.entry_bytes = sum(
            each.shape[-1] * each.itemsize for each in ((key,) if value is key else (key, value))
        )
        rows, lengths = self._coded(key, value)
        self._codes, self._lengths = GrowingTensor(rows), GrowingTensor(lengths)
        self.code_bytes = rows.shape[-1] + lengths.shape[-1] * lengths.itemsize
        self._follow(key, value)

    def _follow(self, key: Tensor, value: Tensor) -> None:
        self._key, self._value = key, value
        self._versions = versions(key, value)

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self._key)

    def is_of(self, key: Tensor | None, value: Tensor | None) -> bool:
        """Whether these are the codes of these very entries."""
        return (
            key is self._key
            and value is self._value
            and None not in self._versions
            and versions(key, value) == self._versions
        )

    def append(self, key: Tensor, value: Tensor) -> None:
        """Code what is new behind the entries so far."""
        rows, lengths = self._coded(key[self.count :], value[self.count :])
        self._codes.append(rows)
        self._lengths.append(lengths)
        self._follow(key, value)

    def blocks(self) -> Iterator[Block]:
        """The codes of all entries."""
        rows, lengths = self._codes.filled, self._lengths.filled
        for start in spread(range(0, len(rows), AT_ONCE)):
            yield Block(start, rows[start : start + AT_ONCE], lengths[start : start + AT_ONCE])

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and the values at these places."""
        key = self._key[places]
        return key, key if self._value is self._key else self._value[places]

    @staticmethod
    @torch.no_grad()
    def _coded(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        portions = zip(key.split(AT_ONCE), value.split(AT_ONCE), strict=True)
        rows, lengths = zip(*(coded(*portion) for portion in portions), strict=True)
        return torch.cat(rows), torch.cat(lengths)


class CodedStore:
    """The entries of a folder with their codes, for bounded readings."""

    def __init__(self, store: Store) -> None:
        self._store, self.count = store, store.state.rows
        self._key, self._value = store.vectors("keys"), store.vectors("values")
        self.width = self._key.width
        files = (self._key,) if self._value is self._key else (self._key, self._value)
        self.entry_bytes = sum(file.row_bytes for file in files)
        self.code_bytes = sum(store.vectors(name).row_bytes for name in CODES)

    def blocks(self) -> Iterator[Block]:
        """The codes of all entries."""
        codes, lengths = (self._store.vectors(name) for name in CODES)
        for start, stop in spread(self._store.spans("codes")):
            yield Block(start, codes.read(start, stop), lengths.read(start, stop))

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and the values at these places."""
        key = self._key.widened(self._key.pick(places))
        if self._value is self._key:
            return key, key
        return key, self._value.widened(self._value.pick(places))


def versions(*tensors: Tensor | None) -> list[int | None]:
    """The versions of tensors; None for those whose changes torch does not count."""
    return [None if each is None or each.is_inference() else each._version for each in tensors]
