"""A memory on the disk: the dictionary of `Memory`, read in blocks, so that it may be larger than RAM."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.attend import look
from regard.attention.looks import Look
from regard.attention.normalisers import NormaliserLike, Softmax
from regard.attention.parts import Part
from regard.attention.scores import Cosine, ScaledDot, ScoreLike
from regard.memory.bounded import Linear
from regard.memory.file import CLASSES, MemoryFileError, check_width, component, describe
from regard.memory.found import EmptyMemoryError
from regard.memory.memory import Memory
from regard.memory.ngrams import CharacterNgrams
from regard.memory.one_pass import Read, Span
from regard.memory.reading import EMPTY, SHARPNESS, Encoder, with_batch_axes
from regard.memory.searching import search
from regard.memory.store import Store
from regard.memory.stored_entries import StoredEntries
from regard.memory.vectors import VectorFile


class StoredMemory(Memory):
    """A soft dictionary in a folder, with the methods of `Memory`: made by ``Memory.open(folder)``.

    Vectors stay on the disk and are read in blocks of 2 MB, so a memory may be larger than RAM. A
    block's checksum is compared when it is first read; later it is read from a mapping of its file,
    which no other program may cut. `write` and what else changes the memory are committed
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

    def __copy__(self) -> Self:
        raise TypeError("a memory on the disk is not copied: open its folder again")

    def close(self) -> None:
        """Close the files, and let another process write."""
        self.entries.store.close()

    def __repr__(self) -> str:
        store = self.entries.store
        return f"StoredMemory('{store.folder}', closed)" if store.is_closed else super().__repr__()

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
        entries, normaliser = self.entries, self._normaliser
        if not len(entries):
            return query.new_zeros((*query.shape[:-1], entries.d_value or query.shape[-1]))
        readable = self._readable(query, mask)
        if type(normaliser) is not Softmax:
            scores = self._all_scores(query)
            return self._blended(normaliser(scores, readable)).to(query.dtype)
        return self._sums(query, readable).reading().to(query.dtype)

    def _sums(self, query: Tensor, readable: Tensor | None) -> Part:
        """The sum over all blocks, in one pass."""
        if (part := self._part_of_few(query, readable)) is not None:
            return part
        values = self._blocks("values", query) if self.entries.has_values else None
        return Part.sum(
            Part.of(scores, key if values is None else next(values)[1])
            for _, key, scores in self._scores(query, readable, self._normaliser.temperature)
        )

    def _prepared(self) -> tuple[Tensor, dict[str, Any]]:
        """As of a memory in RAM, with no key: only their precision and width."""
        return self.entries.like, {"score": self.score or ScaledDot()}

    def _spans(self) -> list[Span]:
        spans: list[Span] = self.entries.store.spans()
        return spans

    def _readers(self, query: Tensor) -> Callable[[], Read]:
        def reader() -> Read:
            read_keys = self._rows("keys", query)
            if not self.entries.has_values:
                return lambda span: (keys := read_keys(span), keys)
            read_values = self._rows("values", query)
            return lambda span: (read_keys(span), read_values(span))

        return reader

    def _key_blocks(self, form: Linear) -> Iterator[tuple[Span, np.ndarray]]:
        read = self._rows("keys", form.query)
        return ((span, read(span)) for span in self._spans())

    def _rows(self, name: str, query: Tensor) -> Callable[[Span], np.ndarray]:
        """Reads a block as compiled loops take it, where it lies; the next block of codes takes the same room."""
        from regard.memory.row_loops import KINDS, rows_of  # with the compiler

        file = self.entries.store.vectors(name)
        kind = None if file.is_coded else KINDS.get(file.dtype)
        if kind is None:
            read = self._block_reader(name, query)
            return lambda span: rows_of(read(span))
        return lambda span: file.loaded(*span).view(kind).reshape(-1, file.width)

    def _read_over_ranks(self, query: Tensor, mask: Tensor | None, group: Any) -> Tensor:
        """The values of the entries of all ranks, blended."""
        from regard.attention.ranks import Blend, Inputs, merge
        from regard.memory.over_ranks import section

        query = with_batch_axes(query, mask)
        entries, rows = self.entries, query.shape[:-1]
        _, ours, width = section(group, query, mask, entries, self.normaliser)

        def compute(common: list[Tensor | None], apart: list[Tensor | None]) -> Blend:
            assert common[0] is not None
            sums = Part.none(rows, width)
            if entries.rows:
                sums = self._sums(common[0], self._readable(query, ours))
            return Blend(sums.reading(), sums.log_normaliser())

        inputs = Inputs([query], [], list(self.parameters()))
        return merge(group, compute, (*rows, width), inputs).numbers.to(query.dtype)

    def _blend(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        sums = self._sums(query, self._readable(query, mask))
        return sums.reading().to(query.dtype), sums.log_normaliser()

    def look(self, queries: Any, *, mask: Tensor | None = None) -> Look:
        """A look at the weights; the keys are read again, block by block, for each answer."""
        query, store = self._vectors(queries).float(), self.entries.store
        if not len(self):
            raise EmptyMemoryError(EMPTY)
        position = torch.empty(1, 1).expand(store.state.rows, query.shape[-1])  # takes no room

        def scores(queries: Tensor, _: Tensor) -> Tensor:
            return self._all_scores(queries)

        mask = self._readable(query, mask)
        answer: Look = look(query, position, score=scores, mask=mask, normaliser=self.normaliser)
        return answer

    def _scored_at_once(self) -> int:
        plain = type(self._normaliser) is Softmax
        store = self.entries.store
        return int(store.vectors("keys").block if plain else store.state.rows)

    def _search_by_torch(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        live = self._live()
        if type(self._normaliser) is not Softmax:
            scores = self._all_scores(queries)
            return self._best(scores, k, None if live is None else live.expand(scores.shape))
        scores_of_blocks = self._scores(queries, live, self._normaliser.temperature)
        return search(((start, scores) for (start, _), _, scores in scores_of_blocks), k)

    def _live(self) -> Tensor | None:
        return self.entries.live() if self.entries.store.deleted else None

    def _readable(self, query: Tensor, mask: Any) -> Tensor | None:
        """Which positions may be read: those of the mask that hold an entry."""
        readable, live = super()._readable(query, mask), self._live()
        if readable is None:
            return None if live is None else live.expand(query.shape[-2], -1)
        return (
            readable.expand(*readable.shape[:-1], self.entries.rows)
            if live is None
            else readable & live
        )

    def _scores(
        self, query: Tensor, readable: Tensor | None, temperature: float = 1.0
    ) -> Iterator[tuple[Span, Tensor, Tensor]]:
        """The rows of each block, its keys, and their scores over the temperature: -inf where they may not be read."""
        score, wide = self.score or ScaledDot(), query.float()
        for span, key in self._blocks("keys", query):
            scores = score(wide, key)
            if temperature != 1.0:
                scores = scores / temperature
            if readable is not None:
                scores = scores.masked_fill(~readable[..., slice(*span)], -torch.inf)
            yield span, key, scores

    def _all_scores(self, query: Tensor) -> Tensor:
        return torch.cat([block for _, _, block in self._scores(query, None)], -1)

    def _blended(self, weights: Tensor) -> Tensor:
        """The values, summed with these weights."""
        blocks = self._blocks("values", weights)
        return torch.stack([weights[..., slice(*span)] @ value for span, value in blocks]).sum(0)

    def _blocks(self, name: str, query: Tensor) -> Iterator[tuple[Span, Tensor]]:
        """The rows and the vectors of each block in float32."""
        read = self._block_reader(name, query)
        return ((span, read(span)) for span in self._spans())

    def _block_reader(self, name: str, query: Tensor) -> Callable[[Span], Tensor]:
        """Reads the vectors of a block in float32; the next block takes the same room.

        Where gradients are wanted, each block has room of its own: the backward pass needs it again.
        """
        traced = self._is_traced(query)
        file: VectorFile = self.entries.store.vectors(name)
        wide = torch.empty(file.block, file.width)

        def read(span: Span) -> Tensor:
            vectors = file.widened(file.read(*span), wide)
            return vectors.clone() if traced else vectors

        return read


Memory._folders = StoredMemory
