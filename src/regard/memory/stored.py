"""A memory on the disk: the dictionary of `Memory`, read in blocks, so that it may be larger than RAM."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.looks import Look
from regard.attention.normalisers import NormaliserLike, Softmax, as_normaliser
from regard.attention.parts import Part
from regard.attention.ranking import top
from regard.attention.scores import Cosine, ScaledDot, ScoreLike
from regard.attention.shapes import Frame, ShapeError
from regard.memory.file import CLASSES, MemoryFileError, check_width, component, describe
from regard.memory.memory import EMPTY, SHARPNESS, EmptyMemoryError, Encoder, Memory
from regard.memory.ngrams import CharacterNgrams
from regard.memory.store import Kind, Store
from regard.memory.vectors import DTYPES, objection

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class StoredEntries:
    """Entries in a folder, under the names that `Entries` has for those in RAM."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names = _Lists(store, 0)

    def __len__(self) -> int:
        return self.store.state.rows - self.store.state.deleted

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
        return None if kind is None else torch.empty(0, dtype=DTYPES[kind[0]])

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
        return (
            torch.cat([self.store.vectors(name).read(*span) for span in spans]) if spans else None
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

    def places(self) -> Iterable[int]:
        deleted = set(self.store.deleted)
        return (row for row in range(self.store.state.rows) if row not in deleted)

    def key_at(self, place: int) -> Tensor:
        return self._row("keys", place)

    def value_at(self, place: int) -> Tensor:
        return self._row("values", place)

    def _row(self, name: str, place: int) -> Tensor:
        return self.store.vectors(name).read(place, place + 1)[0]

    def equal(self, vector: Tensor) -> list[int]:
        if self.d_key is None or vector.shape != (self.d_key,):
            return []
        deleted, places = set(self.store.deleted), []
        for start, stop in self.store.spans():
            keys = self.store.vectors("keys").read(start, stop)
            same = (keys == vector.to(keys)).all(-1).nonzero().flatten() + start
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
        for name, vectors, width in (("key", key, self.d_key), ("value", value, self.d_value)):
            if vectors is None:
                continue
            if vectors.dim() != 2 or len(vectors) != len(key):
                shapes = f"keys have shape {tuple(key.shape)}, values {tuple(vectors.shape)}"
                raise ShapeError(f"{shapes}: pass one row for each entry, (entries, width)")
            if width is not None and vectors.shape[-1] != width:
                raise ShapeError(
                    f"{name}s are {vectors.shape[-1]} wide: pass {name}s of width {width}"
                )
        if isinstance(payloads, str) or (payloads is not None and len(payloads) != len(key)):
            raise ShapeError(f"payloads is no list of {len(key)}: pass one payload for each key")
        if not len(key):
            return
        kinds = {"keys": _kind(key), "values": None if value is None else _kind(value)}
        if state.rows:
            kinds = {"keys": state.keys, "values": state.values or state.keys}
        key = _narrowed("key", key, kinds["keys"])
        value = None if value is None else _narrowed("value", value, kinds["values"])
        if state.rows and value is not None and state.values is None:
            self.store.separate_values()
        self.store.append(key, value, payloads, names, kinds, replaced)

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


class StoredMemory(Memory):
    """A soft dictionary in a folder, with the methods of `Memory`: made by ``Memory.open(folder)``.

    Vectors stay on the disk and are read in blocks of 2 MB, so a memory may be larger than RAM. A
    block's checksum is compared when it is first read. `write` and what else changes it are committed
    when they return: a kill or a power cut loses nothing of them. One process writes at a time; readers see
    the commit at which they opened the folder, until they call `refresh`.

    Precision and widths are those of the first write: float32, float16 or bfloat16. Payloads are what
    JSON can hold, or bytes. Positions are those of the writing; `delete` leaves them, `compact` counts anew.

    ``keys``, ``values`` and `look` take all vectors into RAM; `read`, `find` and lookups do not.

    Example:
        >>> import tempfile
        >>> from regard.memory import CharacterNgrams
        >>> folder = tempfile.mkdtemp()
        >>> with Memory.open(folder, write=True, encoder=CharacterNgrams()) as memory:
        ...     memory.write(["Subject", "Pronoun"], payloads=["Professor Perry", "he"])
        >>> with Memory.open(folder) as memory:
        ...     memory.find("subjects", 1).payloads
        ['Professor Perry']
    """

    entries: Any

    def __init__(
        self,
        folder: str | os.PathLike[str],
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        encoder: Encoder | None = None,
        *,
        write: bool = False,
    ) -> None:
        nn.Module.__init__(self)
        store = Store(Path(folder), write=write)
        try:
            self.entries = StoredEntries(store)
            stored = store.state.components
            if stored is None and score is None and encoder is not None:
                score = Cosine(SHARPNESS)
            passed = {"score": score, "normaliser": normaliser, "encoder": encoder}
            for role in CLASSES:
                described = json.dumps((stored or {}).get(role))
                setattr(self, role, component(role, described, passed[role]))
            if encoder is None and isinstance(self.encoder, CharacterNgrams):
                check_width(self.encoder.width, None)
            if write:
                components = {role: describe(role, getattr(self, role)) for role in CLASSES}
                if components != stored:
                    store.set_components(components)
        except MemoryFileError as fault:
            store.close()
            raise MemoryFileError(f"{folder}: {fault}") from fault
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> StoredMemory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __copy__(self) -> Memory:
        raise TypeError("a memory on the disk is not copied: open its folder again")

    def close(self) -> None:
        """Close the files, and let another process write."""
        self.entries.store.close()

    def refresh(self) -> None:
        """See what other processes have committed since; after their `compact`, positions count anew."""
        self.entries.store.refresh()

    def delete(self, positions: int | Iterable[int] | Tensor) -> None:
        """Commit that entries are no longer read; `compact` frees their room.

        Raises:
            IndexError: there is no such entry.
        """
        if isinstance(positions, Tensor):
            positions = positions.flatten().tolist()
        rows = positions if isinstance(positions, Iterable) else [positions]
        places, count = [operator.index(row) for row in rows], self.entries.store.state.rows
        for place in places:
            if not 0 <= place < count:
                raise IndexError(f"there is no entry {place}: positions go from 0 to {count - 1}")
        self.entries.store.delete(places)

    def __delitem__(self, key: Any) -> None:
        place = self._place(key)
        if place is None:
            raise KeyError(key)
        self.delete(place)

    def compact(self) -> None:
        """Write all entries that are not deleted into new files; positions count from 0 again.

        Other processes keep reading what they opened, and see the new files when they `refresh`.
        """
        self.entries.store.compacted()

    def verify(self) -> None:
        """Read everything and compare every checksum.

        Raises:
            MemoryFileError: a part is damaged; the message has its file and block.
        """
        for _ in self.entries.store.verify():
            pass

    def save(self, path: str | os.PathLike[str]) -> None:
        raise TypeError(
            "a memory on the disk is saved by every write: copy its folder when nobody writes"
        )

    def read(self, queries: Any, *, mask: Tensor | None = None, group: Any = None) -> Tensor:
        """The blended values, in one pass over the blocks for a softmax, and in two for other normalisers.

        Args:
            queries: As for `Memory.read`.
            mask: Booleans that broadcast to (queries, entries), True where an entry may be read.
            group: As for `Memory.read`.
        """
        query = self._vectors(queries)
        if group is not None:
            return self._read_over_ranks(query, mask, group)
        entries, normaliser = self.entries, as_normaliser(self.normaliser or "softmax")
        if not len(entries):
            return query.new_zeros((*query.shape[:-1], entries.d_value or query.shape[-1]))
        if type(normaliser) is not Softmax:
            scores = torch.cat([block for _, _, block in self._scores(query, None)], -1)
            weights = normaliser(scores, self._readable(query, mask))
            return self._blended(weights).to(query.dtype)
        return self._part(query, mask).reading().to(query.dtype)

    def _part(self, query: Tensor, mask: Tensor | None) -> Part:
        """The sum over all blocks, in one pass."""
        values, total = None, None
        if self.entries.store.state.values is not None:
            values = self._blocks("values", query)
        for _, key, scores in self._scores(query, mask):
            share = Part.of(scores, key if values is None else next(values)[1])
            total = share if total is None else total + share
        assert total is not None
        return total

    def _read_over_ranks(self, query: Tensor, mask: Tensor | None, group: Any) -> Tensor:
        """The values of the entries of all ranks, blended."""
        from regard.attention.ranks import Blend, Inputs, agree, check_softmax, meet, merge

        rows, store = query.shape[:-1], self.entries.store

        def describe() -> tuple[tuple[int, ...], int, int, bool]:
            check_softmax(self.normaliser)
            return rows, self.entries.d_value or -1, store.state.rows, mask is not None

        def ruled() -> tuple[Any, tuple[int, ...]]:
            frame = Frame(rows[:-1], rows[-1], len(keys.columns), query.device)
            return keys.mask_of(mask, frame), rows[:-1]

        keys = meet(group, describe)
        width = keys.width if keys.width >= 0 else query.shape[-1]
        ours = agree(group, keys, ruled)

        def compute(common: list[Tensor | None], apart: list[Tensor | None]) -> Blend:
            assert common[0] is not None
            part = self._part(common[0], ours) if store.state.rows else Part.none(rows, width)
            return Blend(part.reading(), part.log_normaliser())

        inputs = Inputs([query], [], list(self.parameters()))
        return merge(group, compute, (*rows, width), inputs).numbers.to(query.dtype)

    forward = read

    def look(self, queries: Any, *, mask: Tensor | None = None) -> Look:
        """A look at the weights; all keys are taken into RAM."""
        query = self._vectors(queries)
        return super().look(query, mask=self._readable(query, mask))

    def _prepared(self) -> tuple[Tensor, dict[str, Any]]:
        keys = self.keys
        if keys is None or not len(self):
            raise EmptyMemoryError(EMPTY)
        return keys, {"score": self.score or ScaledDot(), "normaliser": self.normaliser}

    def _searched_at_once(self) -> int:
        plain = type(as_normaliser(self.normaliser or "softmax")) is Softmax
        store = self.entries.store
        return int(store.vectors("keys").block if plain else store.state.rows)

    def _search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        normaliser = as_normaliser(self.normaliser or "softmax")
        if type(normaliser) is not Softmax:
            scores = torch.cat([block for _, _, block in self._scores(queries, None)], -1)
            return self._best(scores, min(k, len(self)), self._readable(queries, None))
        best, positions, total = None, None, None
        for (start, stop), _, scores in self._scores(queries, None):
            share = Part.of(scores, scores.new_zeros(stop - start, 0))
            total = share if total is None else total + share
            if (
                best is not None
                and best.shape[-1] == k
                and bool((share.maximum <= best[..., -1]).all())
            ):
                continue  # of equal scores the first count
            highest, places = top(scores, k)
            places = places + start
            if best is not None and positions is not None:
                highest, picks = top(torch.cat([best, highest], -1), k)
                places = torch.cat([positions, places], -1).gather(-1, picks)
            best, positions = highest, places
        assert best is not None
        assert positions is not None
        assert total is not None
        count = min(k, len(self))
        weights = torch.exp(best.double() - total.log_normaliser().unsqueeze(-1))
        return weights[..., :count].to(best), positions[..., :count]

    def _readable(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which entries may be read: those of the mask that are not deleted."""
        store = self.entries.store
        if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
            raise TypeError(
                "mask is no tensor of booleans: pass one of shape (queries, entries), True = may be read"
            )
        if mask is not None and mask.shape[-1] != store.state.rows:
            raise ShapeError(
                f"mask covers {mask.shape[-1]} entries, the memory has {store.state.rows} positions"
            )
        if not store.deleted:
            return mask
        live = torch.ones(store.state.rows, dtype=torch.bool)
        live[store.deleted] = False
        return live.expand(query.shape[-2], -1) if mask is None else mask & live

    def _scores(
        self, query: Tensor, mask: Tensor | None
    ) -> Iterator[tuple[tuple[int, int], Tensor, Tensor]]:
        """The rows of each block, its keys, and their scores: -inf where they may not be read.

        For a softmax they are divided by its temperature.
        """
        score, wide = self.score or ScaledDot(), query.float()
        normaliser = as_normaliser(self.normaliser or "softmax")
        temperature = normaliser.temperature if type(normaliser) is Softmax else 1.0
        readable = self._readable(query, mask)
        for span, key in self._blocks("keys", query):
            scores = score(wide, key)
            if temperature != 1.0:
                scores = scores / temperature
            if readable is not None:
                scores = scores.masked_fill(~readable[..., slice(*span)], -torch.inf)
            yield span, key, scores

    def _blended(self, weights: Tensor) -> Tensor:
        """The values, summed with these weights."""
        blocks = self._blocks("values", weights)
        return torch.stack([weights[..., slice(*span)] @ value for span, value in blocks]).sum(0)

    def _blocks(self, name: str, query: Tensor) -> Iterator[tuple[tuple[int, int], Tensor]]:
        """The rows and the vectors of each block in float32; the next block takes the same room.

        Where gradients are wanted, each block has room of its own: the backward pass needs it again.
        """
        traced = torch.is_grad_enabled() and any(
            each.requires_grad for each in (query, *self.parameters())
        )
        store = self.entries.store
        file = store.vectors(name)
        room = np.empty(file.block * file.row_bytes, np.uint8)
        wide = torch.empty(0 if file.dtype == torch.float32 else file.block, file.width)
        for start, stop in store.spans():
            vectors = file.read(start, stop, room)
            vectors = wide[: stop - start].copy_(vectors) if len(wide) else vectors
            yield (start, stop), vectors.clone() if traced else vectors


def _narrowed(name: str, vectors: Tensor, kind: Kind | None) -> Tensor:
    """Vectors in the precision of the file."""
    assert kind is not None
    narrow = vectors.detach().to("cpu", DTYPES[kind[0]])
    if not torch.isfinite(narrow).all():
        raise ValueError(
            f"a {name} holds infinities or NaN in {kind[0]}: a memory of them cannot be saved"
        )
    return narrow


def _kind(vectors: Tensor) -> Kind:
    dtype = torch.float32 if vectors.dtype == torch.float64 else vectors.dtype
    kind = DTYPE_NAMES.get(dtype, str(dtype)), vectors.shape[-1]
    if problem := objection(*kind):
        raise ShapeError(problem) if dtype in DTYPE_NAMES else TypeError(problem)
    return kind


Memory._folders = StoredMemory
