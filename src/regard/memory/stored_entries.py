"""The entries of a memory in a folder, under the names that `Entries` has for those in RAM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.shapes import ShapeError
from regard.memory.coded_entries import CodedStore
from regard.memory.codes import coded, encode
from regard.memory.entries import objection
from regard.memory.records import CODES, VECTORS, Kind
from regard.memory.store import Store
from regard.memory.vectors import CODED, DTYPES, FLOATS, kind_objection

DTYPE_NAMES = {DTYPES[name]: name for name in FLOATS}


class StoredEntries:
    """Entries in a folder, under the names that `Entries` has for those in RAM."""

    def __init__(self, store: Store, key_precision: str | None = None) -> None:
        self.store = store
        if key_precision is not None:
            self._check_precision(key_precision)
        self._key_precision = key_precision
        self.names = _Lists(store, 0)

    def __len__(self) -> int:
        return self.store.state.rows - self.store.state.deleted

    @property
    def has_values(self) -> bool:
        return self.store.state.values is not None

    @property
    def rows(self) -> int:
        return self.store.state.rows

    @property
    def changes(self) -> tuple[int | None, ...]:
        """Numbers that differ after entries were written or deleted, or moved by a compaction."""
        return int(self.store.place.name), self.rows, len(self)

    @property
    def nbytes(self) -> int:
        files = {self.store.vectors(name) for name in VECTORS} if self.rows else ()
        return self.rows * sum(file.row_bytes for file in files)

    @property
    def payloads(self) -> Sequence[Any] | None:
        """The payload of each entry, or None; None before the first list of them."""
        return None if self.store.state.rows_from is None else _Lists(self.store, 1)

    @property
    def d_key(self) -> int | None:
        kind = self.store.state.keys
        return None if kind is None else kind[1]

    @property
    def d_value(self) -> int | None:
        kind = self.store.state.values or self.store.state.keys
        return None if kind is None else kind[1]

    @property
    def like(self) -> Tensor | None:
        kind = self.store.state.keys
        if kind is None:
            return None
        dtype = torch.float32 if kind[0] == CODED else DTYPES[kind[0]]
        return torch.empty(0, kind[1], dtype=dtype)

    @property
    def key(self) -> Tensor | None:
        return self._tensor("keys")

    @property
    def value(self) -> Tensor | None:
        return None if self.store.state.values is None else self._tensor("values")

    @property
    def values(self) -> Tensor | None:
        return self._tensor("values")

    def _tensor(self, name: str) -> Tensor | None:
        spans = self.store.spans()
        return torch.cat([self._rows(name, *span) for span in spans]) if spans else None

    def _rows(self, name: str, start: int, stop: int) -> Tensor:
        """Vectors of a block, where they lie in the file or as its codes stand for them."""
        file = self.store.vectors(name)
        return file.widened(file.read(start, stop))

    def _check_precision(self, precision: str) -> None:
        keys = self.store.state.keys
        if precision not in (*FLOATS, CODED):
            raise ValueError(
                f"key_precision is {precision!r}: pass one of {', '.join((*FLOATS, CODED))}"
            )
        if keys is not None and keys[0] != precision:
            raise ValueError(
                f"key_precision is {precision!r}, and this memory has keys in {keys[0]}:"
                " leave it out, or write into a new folder"
            )

    def columns(self) -> tuple[Any, ...]:
        """Keys, values, payloads and names of the entries that are not deleted, as `append` takes them."""
        places, value = list(self.places()), self.value
        names, payloads = zip(*map(self.store.entry, places), strict=True)
        return (
            self._tensor("keys")[places],  # type: ignore[index]
            None if value is None else value[places],
            None if self.payloads is None else payloads,
            names if self.store.state.named else None,
        )

    def key_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        is_live = self.live()
        for start, stop in self.store.spans():
            live = is_live[start:stop]
            yield live.nonzero().flatten() + start, self._rows("keys", start, stop)[live]

    def live(self) -> Tensor:
        """Which positions hold an entry that is not deleted."""
        is_live = torch.ones(self.rows, dtype=torch.bool)
        is_live[self.store.deleted] = False
        return is_live

    def places(self) -> Iterable[int]:
        deleted = set(self.store.deleted)
        return (row for row in range(self.store.state.rows) if row not in deleted)

    def key_at(self, place: int) -> Tensor:
        return self._row("keys", place)

    def value_at(self, place: int) -> Tensor:
        return self._row("values", place)

    def _row(self, name: str, place: int) -> Tensor:
        return self._rows(name, place, place + 1)[0].clone()  # the caller may write to it

    def equal(self, vector: Tensor) -> list[int]:
        if self.d_key is None or vector.shape != (self.d_key,):
            return []
        deleted, places = set(self.store.deleted), []
        kind, file = self.store.state.keys, self.store.vectors("keys")
        row = _narrowed("key", vector.unsqueeze(0), kind) if file.is_coded else vector
        for start, stop in self.store.spans():
            keys = file.read(start, stop)
            same = (keys == row.to(keys)).all(-1).nonzero().flatten() + start
            places += [place for place in same.tolist() if place not in deleted]
        return places

    def place(self, name: str) -> int | None:
        return self.store.place_of(name)

    def is_named(self, place: int) -> bool:
        return self.names[place] is not None

    def are_all_named(self) -> bool:
        return len(self) == self.store.state.named

    def append(
        self,
        key: Tensor,
        value: Tensor | None = None,
        payloads: Sequence[Any] | None = None,
        names: Sequence[str | None] | None = None,
        replaced: Sequence[int] = (),
    ) -> None:
        """Commit entries, and the deletion of those that they replace; all is on the disk when this returns."""
        state = self.store.state
        if value is None and state.values is not None:
            value = key
        if key.dim() > 2:
            raise ShapeError(f"keys have shape {tuple(key.shape)}: pass keys (entries, width)")
        if problem := objection(key, value, payloads, self.d_key, self.d_value):
            raise ShapeError(problem)
        if not len(key):
            return
        kinds = {"keys": _kind(key), "values": None if value is None else _kind(value)}
        if self._key_precision is not None:
            kinds["keys"] = self._key_precision, key.shape[-1]
        if state.rows:
            kinds = {"keys": state.keys, "values": state.values or state.keys}
        key = _narrowed("key", key, kinds["keys"])
        value = None if value is None else _narrowed("value", value, kinds["values"])
        if state.rows and value is not None and state.values is None:
            keys = self.store.vectors("keys")
            self.store.add_columns(
                {"values": state.keys}, lambda *span: {"values": keys.read(*span)}
            )
        codes = None
        if state.codes is not None:
            wide_key, wide_value = (
                None if rows is None else self.store.vectors(name).widened(rows)
                for name, rows in (("keys", key), ("values", value))
            )
            assert wide_key is not None
            codes = dict(zip(CODES, coded(wide_key, wide_value), strict=True))
        self.store.append(key, value, payloads, names, kinds, replaced, codes)

    def append_keys(self, keys: Tensor) -> bool:
        """As of entries in RAM, with no quicker way: False."""
        return False

    def coded(self) -> CodedStore | None:
        """The entries with their codes, which a writer adds where there are none; None for a reader then."""
        state = self.store.state
        if state.codes is None and self.store.write:

            def rows(*span: int) -> dict[str, Tensor]:
                key = self._rows("keys", *span)
                value = None if state.values is None else self._rows("values", *span)
                return dict(zip(CODES, coded(key, value), strict=True))

            kinds = {"codes": (CODED, self.d_key), "lengths": ("float32", 3)}
            self.store.add_columns(kinds, rows)
        return None if self.store.state.codes is None else CodedStore(self.store)

    def replace(
        self, places: Sequence[int], value: Tensor | None, payloads: Sequence[Any] | None
    ) -> None:
        """Commit other values or payloads: the entries move behind the last one."""
        keys = torch.stack([self.key_at(place) for place in places])
        if value is None and self.store.state.values is not None:
            value = torch.stack([self.value_at(place) for place in places])
        names = [self.names[place] for place in places]
        self.append(keys, value, payloads, names, replaced=places)


class _Lists(Sequence[Any]):
    """The payloads, or the names, by position: each is read when it is needed."""

    def __init__(self, store: Store, which: int) -> None:
        self._store, self._which = store, which

    def __len__(self) -> int:
        return self._store.state.rows

    def __getitem__(self, place: Any) -> Any:
        return self._store.entry(range(len(self))[place])[self._which]


def _narrowed(name: str, vectors: Tensor, kind: Kind | None) -> Tensor:
    """Vectors in the precision of the file."""
    assert kind is not None
    if kind[0] == CODED and torch.isfinite(vectors).all():
        return encode(vectors).rows
    narrow = vectors.detach().to("cpu", torch.float32 if kind[0] == CODED else DTYPES[kind[0]])
    if not torch.isfinite(narrow).all():
        raise ValueError(
            f"a {name} holds infinities or NaN in {kind[0]}: a memory of them cannot be saved"
        )
    return narrow


def _kind(vectors: Tensor) -> Kind:
    dtype = torch.float32 if vectors.dtype == torch.float64 else vectors.dtype
    kind = DTYPE_NAMES.get(dtype, str(dtype)), vectors.shape[-1]
    if problem := kind_objection(*kind):
        raise ShapeError(problem) if dtype in DTYPE_NAMES else TypeError(problem)
    return kind
