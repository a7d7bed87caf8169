"""A memory on the disk: the dictionary of `Memory`, read in blocks, so that it may be larger than RAM."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.attend import look
from regard.attention.looks import Look
from regard.attention.normalisers import NormaliserLike, Softmax, as_normaliser
from regard.attention.parts import Part
from regard.attention.scores import Cosine, ScaledDot, ScoreLike
from regard.attention.shapes import ShapeError, check_plane
from regard.loops.availability import serve
from regard.memory import one_pass
from regard.memory.bounded import SMALL, Linear
from regard.memory.file import CLASSES, MemoryFileError, check_width, component, describe
from regard.memory.found import EmptyMemoryError
from regard.memory.memory import EMPTY, SHARPNESS, Encoder, Memory, with_batch_axes
from regard.memory.ngrams import CharacterNgrams
from regard.memory.searching import search
from regard.memory.store import VECTORS, Store
from regard.memory.stored_entries import StoredEntries
from regard.memory.vectors import aligned


class StoredMemory(Memory):
    """A soft dictionary in a folder, with the methods of `Memory`: made by ``Memory.open(folder)``.

    Vectors stay on the disk and are read in blocks of 2 MB, so a memory may be larger than RAM. A
    block's checksum is compared when it is first read. `write` and what else changes it are committed
    when they return: a kill or a power cut loses nothing of them. One process writes at a time; readers see
    the commit at which they opened the folder, until they call `refresh`.

    Precision and widths are those of the first write: float32, float16 or bfloat16; or keys have that of
    ``key_precision``, also ``"int8"``: whole numbers with a scale for each key. Payloads are what
    JSON can hold, or bytes. Positions are those of the writing; `delete` leaves them, `compact` counts anew.

    ``keys`` and ``values`` take all vectors into RAM; `read`, `find`, `look` and lookups do not.

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
        key_precision: str | None = None,
    ) -> None:
        nn.Module.__init__(self)
        store = Store(Path(folder), write=write)
        try:
            self.entries = StoredEntries(store, key_precision)
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

    def _read(self, query: Tensor, mask: Tensor | None, group: Any = None) -> Tensor:
        """The blend of all values, in one pass over the blocks for a softmax, and in two for other normalisers."""
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
        has_batch = isinstance(mask, Tensor) and mask.dim() > 2
        if not has_batch and (form := self._form(query)) is not None:
            pairs, readable = self._pairs(query), self._readable(query, mask)
            return one_pass.part_of(form, pairs, self.entries.d_value, readable)
        values = None
        if self.entries.store.state.values is not None:
            values = self._blocks("values", query)
        return Part.sum(
            Part.of(scores, key if values is None else next(values)[1])
            for _, key, scores in self._scores(query, mask, self._temperature())
        )

    def _form(self, query: Tensor) -> Linear | None:
        """The scores as compiled loops read them; None where they do not, or the memory is small."""
        store, score = self.entries.store, self.score or ScaledDot()
        names = (
            VECTORS if store.state.values is not None else VECTORS[:1]
        )  # keys that are the values
        entry_bytes = sum(store.vectors(name).row_bytes for name in names)
        is_small = store.state.rows * entry_bytes < SMALL
        if is_small or query.dim() > 2 or self._is_traced(query) or not serve(query):
            return None
        form = Linear.of(score, query.double(), self.entries.d_key, self._temperature())
        return form if one_pass.serves(form) else None

    def _pairs(self, query: Tensor) -> Iterator[tuple[tuple[int, int], Tensor, Tensor]]:
        """The rows of each block, its keys and its values; those of float16 as they are."""
        keys = self._blocks("keys", query, narrow=torch.float16)
        if self.entries.store.state.values is None:
            return ((span, key, key) for span, key in keys)
        values = self._blocks("values", query, narrow=torch.float16)
        return ((span, key, value) for (span, key), (_, value) in zip(keys, values, strict=True))

    def _read_over_ranks(self, query: Tensor, mask: Tensor | None, group: Any) -> Tensor:
        """The values of the entries of all ranks, blended."""
        from regard.attention.ranks import Blend, Inputs, merge
        from regard.memory.over_ranks import section

        query = with_batch_axes(query, mask)
        entries, rows = self.entries, query.shape[:-1]
        _, ours, width = section(group, query, mask, entries, self.normaliser)

        def compute(common: list[Tensor | None], apart: list[Tensor | None]) -> Blend:
            assert common[0] is not None
            part = self._part(common[0], ours) if entries.rows else Part.none(rows, width)
            return Blend(part.reading(), part.log_normaliser())

        inputs = Inputs([query], [], list(self.parameters()))
        return merge(group, compute, (*rows, width), inputs).numbers.to(query.dtype)

    def _blend(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        part = self._part(query, mask)
        return part.reading().to(query.dtype), part.log_normaliser()

    def look(self, queries: Any, *, mask: Tensor | None = None) -> Look:
        """A look at the weights; the keys are read again, block by block, for each answer."""
        query, store = self._vectors(queries), self.entries.store
        if not len(self):
            raise EmptyMemoryError(EMPTY)
        position = torch.empty(1, 1).expand(store.state.rows, query.shape[-1])  # takes no room

        def scores(some: Tensor, _: Tensor) -> Tensor:
            return torch.cat([block for _, _, block in self._scores(some, None)], -1)

        mask = self._readable(query, mask)
        answer: Look = look(query, position, score=scores, mask=mask, normaliser=self.normaliser)
        return answer

    def _searched_at_once(self) -> int:
        plain = type(as_normaliser(self.normaliser or "softmax")) is Softmax
        store = self.entries.store
        return int(store.vectors("keys").block if plain else store.state.rows)

    def _search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        normaliser = as_normaliser(self.normaliser or "softmax")
        if type(normaliser) is not Softmax:
            scores = torch.cat([block for _, _, block in self._scores(queries, None)], -1)
            return self._best(scores, min(k, len(self)), self._readable(queries, None))
        blocks = (
            (start, key, scores)
            for (start, _), key, scores in self._scores(queries, None, self._temperature())
        )
        weights, positions = search(None, blocks, k)
        count = min(k, len(self))
        return weights[..., :count], positions[..., :count]

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
        if mask is not None:
            check_plane("mask", mask.shape, query.shape[-2], store.state.rows)
        if not store.deleted:
            return mask
        live = torch.ones(store.state.rows, dtype=torch.bool)
        live[store.deleted] = False
        return live.expand(query.shape[-2], -1) if mask is None else mask & live

    def _scores(
        self, query: Tensor, mask: Tensor | None, temperature: float = 1.0
    ) -> Iterator[tuple[tuple[int, int], Tensor, Tensor]]:
        """The rows of each block, its keys, and their scores over the temperature: -inf where they may not be read."""
        score, wide = self.score or ScaledDot(), query.float()
        readable = self._readable(query, mask)
        for span, key in self._blocks("keys", query):
            scores = score(wide, key)
            if temperature != 1.0:
                scores = scores / temperature
            if readable is not None:
                scores = scores.masked_fill(~readable[..., slice(*span)], -torch.inf)
            yield span, key, scores

    def _temperature(self) -> float:
        normaliser = as_normaliser(self.normaliser or "softmax")
        assert isinstance(normaliser, Softmax)
        return normaliser.temperature

    def _blended(self, weights: Tensor) -> Tensor:
        """The values, summed with these weights."""
        blocks = self._blocks("values", weights)
        return torch.stack([weights[..., slice(*span)] @ value for span, value in blocks]).sum(0)

    def _is_traced(self, query: Tensor) -> bool:
        """Whether a reading of this query has gradients."""
        tensors = (query, *self.parameters())
        return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)

    def _blocks(
        self, name: str, query: Tensor, narrow: torch.dtype = torch.float32
    ) -> Iterator[tuple[tuple[int, int], Tensor]]:
        """The rows and the vectors of each block in float32; the next block takes the same room.

        Where gradients are wanted, each block has room of its own: the backward pass needs it again.
        Vectors of the type `narrow` are not widened.
        """
        traced = self._is_traced(query)
        store = self.entries.store
        file = store.vectors(name)
        room = aligned(file.block * file.row_bytes)
        is_narrow = file.dtype not in (torch.float32, narrow)
        wide = torch.empty(file.block, file.width) if is_narrow else None
        for start, stop in store.spans():
            vectors = file.read(start, stop, room)
            vectors = vectors if wide is None else file.widened(vectors, wide)
            yield (start, stop), vectors.clone() if traced else vectors


Memory._folders = StoredMemory
