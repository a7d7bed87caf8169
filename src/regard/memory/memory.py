"""A dictionary that is read by similarity."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any, ClassVar, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend, look
from regard.attention.constants import whole
from regard.attention.kernels.ties import level_best
from regard.attention.looks import Look
from regard.attention.masks import as_mask
from regard.attention.masks.mask import check_boolean
from regard.attention.normalisers import NormaliserLike, Softmax, as_normaliser, is_plain
from regard.attention.products import widen
from regard.attention.ranking import top
from regard.attention.scores import Cosine, ScaledDot, ScoreLike, build
from regard.attention.scores.prepare import is_pairwise
from regard.attention.shapes import ShapeError, check_plane
from regard.attention.torch_names import answers
from regard.memory import one_pass
from regard.memory.bounded import BoundedReading, Linear, Source, read_bounded
from regard.memory.coded_entries import AT_ONCE
from regard.memory.entries import Entries, Trainable
from regard.memory.file import Contents, read_memory, write_memory
from regard.memory.found import EmptyMemoryError, Found
from regard.memory.objects import (
    as_rows,
    as_value,
    floats,
    is_alone,
    is_array,
    is_text,
    numbers,
    short,
    strings,
)
from regard.memory.one_pass import Span

Strings = str | Sequence[str]
EMPTY = "the memory is empty: write entries before looking one up"
SHOWN = 4  # entries that a repr lists
ROOM = 1 << 24  # scores that a search by torch holds at a time
TOGETHER = 1 << 12  # queries that take one pass
LEAST = 1 << 22  # bytes of keys and values, times queries, that compiled loops read faster
FINAL = "write the entries to keep, those of items(), into a new memory"
ABSENT = {  # advice for the methods of a dict that are absent
    **dict.fromkeys(("pop", "popitem", "clear"), f"nothing is deleted: {FINAL}"),
    "setdefault": "write `if key not in memory: memory[key] = value`",
}
SHARPNESS = 20.0  # weights of 0.99 for an exact key among hundreds of strings

Alone = Float[Tensor, " width"]
Encoder = Callable[[list[str]], Any]
ReadAll = Callable[[Tensor, Any], tuple[Tensor, Tensor]]


class Memory(nn.Module):
    """A soft dictionary: every key is compared with the query, and the values are blended.

    ``memory(q) = normalise(score(q, K)) V``

    Neural Turing Machines (arXiv 1410.5401, equations 2 and 5); Key-Value Memory Networks
    (arXiv 1606.03126, equations 1 and 2).

    Args:
        d_key: Width of the keys; that of the first write by default.
        d_value: Width of the values; that of the first write by default.
        score: How queries are compared with keys, or a name. By default scaled dot product; with an
            encoder, ``Cosine(scale=20)``: vectors of strings have like lengths, and a softmax
            of cosines between -1 and 1 alone would be almost uniform. ``"general"`` and ``"additive"``
            are built for ``d_key``.
        normaliser: Scores to weights, or a name: softmax by default, which blends; ``"hard"`` looks
            up.
        encoder: Turns a list of strings into vectors ``(strings, width)``; needed to write or
            query with strings.
        trainable: Makes ``"keys"``, ``"values"`` or both (True) parameters. A write then makes a
            new parameter: write first, hand the parameters to an optimiser afterwards.

    Example:
        >>> from regard.memory import CharacterNgrams
        >>> memory = Memory(encoder=CharacterNgrams(), normaliser="hard")
        >>> memory.write(["Subject", "Pronoun"], ["Professor Perry", "he"])
        >>> memory["Subject"], memory["the subjects"]
        ('Professor Perry', 'Professor Perry')
        >>> memory["Object"] = "the lecture"
        >>> list(memory), "Object" in memory, "object" in memory
        (['Subject', 'Pronoun', 'Object'], True, False)
        >>> memory.normaliser = "softmax"
        >>> memory["the subjects"]
        Found(0.99 'Professor Perry')

    `get`, `update`, `items`, `in` and iteration are those of a dict. ``keys`` and ``values`` are the
    tensors, so ``dict(memory.items())`` makes a dict of it. Nothing is deleted.

    Keys that were strings and payloads are part of ``state_dict()``, as JSON in tensors of bytes.
    A payload that JSON cannot hold is None there, with a warning; the others stay.
    """

    _folders: ClassVar[Callable[..., Memory]]
    """Opens a folder: `StoredMemory`, which is built on this class."""

    @answers({})
    def __init__(
        self,
        d_key: int | None = None,
        d_value: int | None = None,
        *,
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        encoder: Encoder | None = None,
        trainable: Trainable = False,
    ) -> None:
        super().__init__()
        self.entries = Entries(d_key, d_value, trainable)
        self.__dict__["entries"] = self.entries  # found in a tenth of the time of a module's part
        if score is None and encoder is not None:
            score = Cosine(SHARPNESS)
        self.score = None if score is None else build(score, d_key, d_key)
        self.normaliser = normaliser
        self.encoder = encoder

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a score or normaliser may be given by its name at any time."""
        if isinstance(value, str) and name == "score":
            value = build(value, self.entries.d_key, self.entries.d_key)
        elif isinstance(value, str) and name == "normaliser":
            value = as_normaliser(value)
        elif name == "encoder" and value is not None and not callable(value):
            raise TypeError(
                f"encoder is {value!r}: pass a function of a list of strings, such as CharacterNgrams()"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """As in nn.Module, with advice for an absent method of a dict."""
        if name in ABSENT:
            raise AttributeError(f"a Memory has no {name}: {ABSENT[name]}")
        return super().__getattr__(name)

    def __delitem__(self, key: Any) -> None:
        raise TypeError(f"an entry of a Memory cannot be deleted: {FINAL}")

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: Any) -> bool:
        """Whether this very key was written: the string, or the vector with these numbers."""
        return self._place(key) is not None

    def __iter__(self) -> Iterator[Any]:
        """The keys in their order: the string where one was written, else the vector."""
        for place in self.entries.places():
            yield self._key(place)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Each key, as `iter` gives it, with its payload, or its value where it has none."""
        for place in self.entries.places():
            yield self._key(place), self._answer(place)

    def get(self, key: Any, default: Any = None) -> Any:
        """The payload, or value, of this very key; the default where nobody wrote the key."""
        place = self._place(key)
        return default if place is None else self._answer(place)

    def update(self, entries: Mapping[Any, Any] | Memory) -> None:
        """Write the entries of a dict, as `write` does, or those of another memory behind the last one."""
        if not isinstance(entries, Memory):
            self.write(dict(entries))
        elif len(entries):
            self.entries.append(*entries.entries.columns())

    def __repr__(self) -> str:
        items = [f"{short(key)}: {short(item)}" for key, item in islice(self.items(), SHOWN)]
        more = ", …" if len(self) > SHOWN else ""
        components = {"score": self.score, "normaliser": self.normaliser, "encoder": self.encoder}
        options = "".join(
            f", {name}={type(part).__name__ if isinstance(part, nn.Module) else part}"
            for name, part in components.items()
            if part is not None
        )
        return f"Memory({{{', '.join(items)}{more}}}, entries={len(self)}{options})"

    def __copy__(self) -> Memory:
        """A memory with the same tensors that is written to by itself."""
        twin = type(self).__new__(type(self))
        entries = copy(self.entries)
        modules = self._modules | {"entries": entries}
        twin.__dict__.update(self.__dict__, entries=entries, _modules=modules)
        return twin

    @property
    def keys(self) -> Float[Tensor, "*batch entries d_key"] | None:
        """The keys, or None before the first write."""
        return self.entries.key

    @property
    def values(self) -> Float[Tensor, "*batch entries d_value"] | None:
        """The values, or None before the first write."""
        return self.entries.values

    @property
    def payloads(self) -> list[Any]:
        """The payload of each entry, or None."""
        stored = self.entries.payloads
        return [None] * len(self) if stored is None else list(stored)

    def write(
        self,
        keys: Float[Tensor, "*batch entries d_key"] | Alone | Sequence[Any] | Mapping[Any, Any],
        values: Float[Tensor, "*batch entries d_value"] | Alone | Sequence[Any] | None = None,
        payloads: Sequence[Any] | None = None,
    ) -> None:
        """Append entries, one or many; those already there stay as they are.

        A dict is its keys and their values, each written as by ``memory[key] = value``: the entry
        of a key that is there is replaced.

        Args:
            keys: The keys: vectors, or strings for the encoder. A string
                or a vector alone is one entry.
            values: The values: vectors, one number each, or strings, which are encoded for
                blending and kept as payloads. The keys by default.
            payloads: Any object for each entry, handed back by `find` and by a hard lookup.

        Raises:
            ShapeError: If the numbers or widths do not fit each other or earlier writes.
            ValueError: If there are strings and no encoder.
        """
        is_vectors = isinstance(keys, Tensor)
        if not is_vectors and isinstance(keys, Mapping):
            if values is not None or payloads is not None:
                raise TypeError(
                    "got a dict and values or payloads as well: a dict holds its values"
                )
            self._set(list(keys), list(keys.values()))
            return
        key = self._vectors(keys)
        value = None if values is None else self._values(values)
        if payloads is None and values is not None and is_text(values):
            payloads = strings(values)
        names = None if is_vectors or not is_text(keys) else strings(keys)
        self.entries.append(key, value, payloads, names)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write one entry, or replace that of this very key.

        Args:
            key: A string or a vector.
            value: A string, a vector (a list of numbers is one) or a number: the value of the entry.
                Any other object becomes the payload alone: a new entry has its key as its value, one
                that is there keeps its value. A vector or number leaves no payload. In a memory with an
                encoder, a number or list that is not as wide as the values is a payload, too.
        """
        self._set([key], [value])

    def _set(self, keys: list[Any], objects: list[Any]) -> None:
        """Write or replace the entries of these keys; all of them or, where one does not fit, none."""
        for key in keys:
            if not is_alone(key):
                raise TypeError(
                    f"got {short(key)} as a key: pass a string or a vector, or use write"
                )
        places = [self._place(key) for key in keys]
        value, payloads = self._columns(objects)
        new = [row for row, place in enumerate(places) if place is None]
        old = {place: row for row, place in enumerate(places) if place is not None}

        def at(picks: list[int]) -> tuple[Tensor | None, list[Any] | None]:
            if len(picks) == len(keys):
                return value, payloads
            return (
                None if value is None else value[picks],
                None if payloads is None else [payloads[row] for row in picks],
            )

        if new:
            added = [keys[row] for row in new]
            vectors = (
                self._vectors(added)
                if is_text(added)
                else as_rows("keys", [self._vectors(key)[0] for key in added])
            )
            width = self.entries.d_value
            if value is None and width not in (None, vectors.shape[-1]):
                raise ShapeError(
                    f"the values of this memory are {width} wide, and {short(objects[new[0]])} is no vector of"
                    " this width: write it beside one, as in write(key, value, payloads=[...])"
                )
            names = [key if isinstance(key, str) else None for key in added]
            self.entries.append(
                vectors, *at(new), names if any(is_text(key) for key in added) else None
            )
        if old:
            self.entries.replace(list(old), *at(list(old.values())))

    def _columns(self, objects: list[Any]) -> tuple[Tensor | None, list[Any] | None]:
        """The values of objects that are all strings, or vectors or numbers, and the payloads of others."""
        width = self.entries.d_value
        if is_text(objects):
            encoded = self._vectors(objects)
            return (encoded if width in (None, encoded.shape[-1]) else None), objects
        vectors = [vector for each in objects if (vector := as_value(each)) is not None]
        if not vectors or len(vectors) < len(objects):
            return None, objects or None
        if self.encoder is not None and not any(is_array(each) for each in objects):
            plain = not any(isinstance(each, Sequence) for each in objects)
            fit = plain if width is None else {len(vector) for vector in vectors} == {width}
            if not fit:
                return None, objects
        return as_rows("values", vectors), None

    @overload
    def read(
        self, queries: Any, *, mask: Any = None, group: Any = None, tolerance: None = None
    ) -> Tensor: ...

    @overload
    def read(
        self, queries: Any, *, mask: Any = None, group: Any = None, tolerance: float
    ) -> BoundedReading: ...

    def read(
        self,
        queries: Float[Tensor, "*batch queries d_key"] | Strings,
        *,
        mask: Any = None,
        group: Any = None,
        tolerance: float | None = None,
    ) -> Float[Tensor, "*batch queries d_value"] | BoundedReading:
        """The blended values; zero where there is nothing to read, as in an empty memory.

        Args:
            queries: Vectors, or strings for the encoder. They are read in the precision of the keys, and the answer has
                theirs.
            mask: Which entries may be read, as for `regard.attend`.
            group: Processes that share out the entries, as for `regard.attend`: each reads with the same
                queries, from a memory that holds its own entries; one without any was made with
                ``d_key`` and ``d_value``.
            tolerance: The weight that may be left out, from 0 up to below 1. The answer is then a
                `BoundedReading`, without gradients: the entries that matter are found by codes of 8 bits,
                which are kept. With a group each rank bounds what it leaves out. Where no bound is known
                (other scores than dot products and their soft caps, other normalisers than softmax), or
                reading everything is faster, all is read.
        """
        query = self._vectors(queries)
        if tolerance is not None:
            return self._read_within(query, mask, group, tolerance)
        return self._read(query, mask, group)

    def _read(self, query: Tensor, mask: Any, group: Any = None) -> Tensor:
        """The blend of all values."""
        keys, values = self.keys, self.values
        if group is not None:
            width = self.entries.d_key or query.shape[-1]
            if keys is None or values is None:  # nothing here, though perhaps on other ranks
                keys = query.new_empty(0, width)
                values = query.new_empty(0, self.entries.d_value or width)
            options = {"score": self.score, "normaliser": self.normaliser, "group": group}
        elif values is None or not len(self):
            width = self.entries.d_value or self.entries.d_key or query.shape[-1]
            return query.new_zeros((*query.shape[:-1], width))
        else:
            keys, options = self._prepared()
        reading = attend(query.to(keys.dtype), keys, values, mask=mask, **options)
        return reading.to(query.dtype)

    forward = read

    @torch.no_grad()
    def _read_within(
        self, query: Tensor, mask: Any, group: Any, tolerance: float
    ) -> BoundedReading:
        """The blend of the values that matter."""
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}: pass a weight from 0 to below 1")
        query = with_batch_axes(query, mask)
        if group is None:
            return self._bounded(query, mask, tolerance, self._read_all)[0]
        from regard.memory.over_ranks import read_within  # with torch.distributed

        def compute(mask: Any) -> tuple[BoundedReading, Tensor]:
            return self._bounded(query, mask, tolerance, self._blend)

        return read_within(group, query, mask, self.entries, self.normaliser, compute)

    def _bounded(
        self, query: Tensor, mask: Any, tolerance: float, read_all: ReadAll
    ) -> tuple[BoundedReading, Tensor]:
        """The blend of the values that matter, and the logarithm of their sum of exponentials."""
        normaliser, source = as_normaliser(self.normaliser or "softmax"), self._source()
        if source is None or type(normaliser) is not Softmax:
            reading, logs = read_all(query, mask)
            nothing = reading.new_zeros(reading.shape[:-1])
            return BoundedReading(reading, nothing, nothing, 1.0), logs
        rows = query.flatten(0, -2)
        readable = self._readable(query, mask)
        if readable is not None:
            readable = readable.expand(*query.shape[:-1], source.count).flatten(0, -2)

        def read_rows(places: list[int]) -> tuple[Tensor, Tensor]:
            return read_all(rows[places], None if readable is None else readable[places])

        score = self.score or ScaledDot()
        answer, logs = read_bounded(
            rows, score, normaliser.temperature, source, tolerance, readable, read_rows
        )
        reading, bound, error = (
            each.unflatten(0, query.shape[:-1])
            for each in (answer.reading, answer.bound, answer.error)
        )
        return BoundedReading(reading, bound, error, answer.share), logs

    def _read_all(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        """The blend of all values, and NaN for the sum of exponentials: a reading of all entries leaves nothing out."""
        reading = self._read(query, mask)
        return reading, reading.new_full(reading.shape[:-1], torch.nan)

    def _blend(self, query: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
        """The blend of all values, and the logarithm of the sum of exponentials."""
        return self._read(query, mask), self.look(query, mask=mask).log_normaliser()

    def _source(self) -> Source | None:
        """The entries with codes, for a bounded reading; None where there are none."""
        return self.entries.coded() if len(self) else None

    def _readable(self, query: Tensor, mask: Any) -> Tensor | None:
        """The mask as booleans that broadcast to (*batch, queries, entries)."""
        rows = self.entries.rows
        if isinstance(mask, Tensor):
            check_boolean(mask)
            check_plane("mask", mask.shape, query.shape[-2], rows)
        if mask is None or isinstance(mask, Tensor):
            return mask
        return as_mask(mask).dense(query.shape[:-2], query.shape[-2], rows, query.device)

    def look(
        self, queries: Float[Tensor, "*batch queries d_key"] | Strings, *, mask: Any = None
    ) -> Look:
        """A look at the weights of a reading."""
        keys, options = self._prepared()
        answer: Look = look(self._vectors(queries).to(keys.dtype), keys, mask=mask, **options)
        return answer

    def __getitem__(self, query: Any) -> Any:
        """The payload of the entry that a hard lookup reads; else the best one, or the reading.

        A string or vector gives one answer, several give several. There is always an answer, so
        never a KeyError. Where the weights blend, strings are answered as by ``find(query, 1)``, by the
        best payload with its weight. Vectors, and strings where there are no payloads, give the
        reading, a tensor. An entry without a payload among others with one answers with its value.

        Raises:
            EmptyMemoryError: If nothing was written yet.
        """
        if not len(self):
            raise EmptyMemoryError(EMPTY)
        hard = getattr(self.normaliser, "reads_one_key", False)
        if self.entries.payloads is None or not (hard or is_text(query)):
            reading = self.read(query)
            return reading[..., 0, :] if is_alone(query) else reading
        best = self.find(query, 1)
        if hard:
            return self._at(best.positions[..., 0], self._answer)
        return replace(best, payloads=self._at(best.positions, self._answer))

    def find(self, query: Any, k: int = 5) -> Found:
        """The ``k`` entries with the largest weights (all, where there are fewer).

        Example:
            >>> from regard.memory import CharacterNgrams
            >>> memory = Memory(encoder=CharacterNgrams())
            >>> memory.write(["Sender", "Subject"], payloads=[{"line": 1}, {"line": 2}])
            >>> weights, payloads = memory.find("subject", 1)
            >>> payloads
            [{'line': 2}]
        """
        k = whole("k", k)
        vectors, alone = self._vectors(query), is_alone(query)
        if not len(self):
            weights = vectors.new_zeros((*vectors.shape[:-1], 0))
            positions = weights.long()
        else:
            batch = max(1, prod(vectors.shape[:-2]))
            weights, positions = _in_portions(
                lambda rows: self._search(rows, min(k, len(self))), vectors, TOGETHER // batch
            )
        if alone:
            weights, positions = weights[..., 0, :], positions[..., 0, :]
        payloads = self.entries.payloads
        return Found(
            weights, self._at(positions, payloads.__getitem__ if payloads else _none), positions
        )

    def _search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The largest weights of each query, and where they stand: by compiled loops, or by torch."""
        if k <= one_pass.MOST and (form := self._form(queries)) is not None:
            answer = one_pass.best_of(form, self._key_blocks(form), k, self._live())
            if answer is not None:
                weights, positions = (rows.unflatten(0, queries.shape[:-1]) for rows in answer)
                return weights, positions
        scores = self._scored_at_once() * prod(queries.shape[:-2])
        return _in_portions(
            lambda rows: self._search_by_torch(rows, k), queries, ROOM // max(1, scores)
        )

    def _form(self, query: Tensor) -> Linear | None:
        """The scores as compiled loops read them; None where they do not, or the memory is small."""
        rows = prod(query.shape[:-1])
        if self.entries.nbytes * rows < LEAST or self._is_traced(query):
            return None
        keys, options = self._prepared()
        normaliser = as_normaliser(self.normaliser or "softmax")
        return one_pass.form_of(options["score"], query, keys, normaliser)

    def _is_traced(self, query: Tensor) -> bool:
        """Whether a reading of this query has gradients."""
        if not torch.is_grad_enabled():
            return False
        return any(each.requires_grad for each in (query, *self.buffers(), *self.parameters()))

    def _key_blocks(self, form: Linear) -> Iterator[tuple[Span, np.ndarray]]:
        """The rows of each block and its keys, as compiled loops read them."""
        from regard.memory.row_loops import rows_of  # with the compiler

        keys = self._prepared()[0].detach()
        for start, block in zip(range(0, len(keys), AT_ONCE), keys.split(AT_ONCE), strict=True):
            yield (start, start + len(block)), rows_of(block)

    def _live(self) -> Tensor | None:
        """Which positions hold an entry; None for all."""
        return None

    def _scored_at_once(self) -> int:
        """The entries whose scores a search by torch holds together."""
        return len(self)

    def _search_by_torch(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        keys, options = self._prepared()
        wide = widen(keys)
        queries = queries.to(wide.dtype)
        scores = widen(options["score"](queries, wide))
        if is_pairwise(self.score or ScaledDot()):
            scores = level_best(scores, queries, keys)
        return self._best(scores, k)

    def _best(
        self, scores: Tensor, k: int, readable: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The largest weights of each row of scores, and where they stand."""
        normaliser = as_normaliser(self.normaliser or "softmax")
        weights = normaliser(scores, readable)
        if readable is not None:
            scores = scores.masked_fill(~readable, -torch.inf)
        if is_plain(normaliser):  # a better score never weighs less
            positions = top(scores.detach(), k)[1]
        else:
            by_score = scores.argsort(dim=-1, descending=True, stable=True)
            by_weight = weights.gather(-1, by_score).argsort(dim=-1, descending=True, stable=True)
            positions = by_score.gather(-1, by_weight)[..., :k]
        return weights.gather(-1, positions), positions

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, which appears whole or not at all.

        It holds keys, values, payloads (what JSON can say of them: a tuple comes back as a list)
        and which of our scores, normalisers and encoders were used. Of a score of your own the
        parameters are kept; its code, like that of other callables, is passed again to `open`.

        Raises:
            ValueError: If a payload cannot be written as JSON (the message has its place), or a key
                or value is not finite.
            OSError: If the file cannot be written.
        """
        entries = self.entries
        components = (self.score, self.normaliser, self.encoder)
        write_memory(
            path, Contents(entries.key, entries.value, entries.payloads, entries.names, *components)
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        encoder: Encoder | None = None,
        trainable: Trainable = False,
        write: bool = False,
        key_precision: str | None = None,
    ) -> Memory:
        """A memory that was saved. The file is data only: nothing in it is ever run.

        A folder is a `StoredMemory`, whose vectors stay on the disk:
        ``with Memory.open(folder, write=True) as memory:`` makes one, or writes to it.

        Args:
            path: The file, or the folder.
            score: In place of the saved one; needed where that was not one of ours.
            normaliser: Likewise.
            encoder: Likewise, once there are strings to encode.
            trainable: As in the constructor; vectors on the disk are not.
            write: Opens a folder for writing; one that is not there is made.
            key_precision: Of the keys that a new folder will hold, in place of that of the first write:
                ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"``, which takes a byte for each
                number and four for the scale of a key. A number is then off by at most 1/254 of
                the largest of its key. Values that are the keys have their precision.

        Raises:
            MemoryFileError: If the file is damaged, hostile or of another kind.
            OSError: If the file cannot be read.
        """
        if write or os.path.isdir(path):
            if trainable:
                raise ValueError("trainable is set: the vectors of a folder are not trained")
            return cls._folders(
                path, score, normaliser, encoder, write=write, key_precision=key_precision
            )
        if key_precision is not None:
            raise ValueError("key_precision is set: it is for a memory in a folder")
        contents = read_memory(path, score=score, normaliser=normaliser, encoder=encoder)
        memory = cls(
            score=ScaledDot() if contents.score is None else contents.score,
            normaliser=contents.normaliser,
            encoder=contents.encoder,
            trainable=trainable,
        )
        if contents.key is not None:
            lists = (contents.payloads, contents.names)
            memory.entries.append(contents.key, contents.value, *lists)
        return memory

    def _prepared(self) -> tuple[Tensor, dict[str, Any]]:
        """The keys after the score's work on them, and the score and normaliser that read them."""
        if self.keys is None or not len(self):
            raise EmptyMemoryError(EMPTY)
        score, keys = self.entries.prepared(self.score or ScaledDot())
        return keys, {"score": score, "normaliser": self.normaliser}

    def _place(self, key: Any) -> int | None:
        """The place of the first entry with this very key, or None."""
        if isinstance(key, str):
            place = self.entries.place(key)
            if place is not None or self.entries.are_all_named() or self.encoder is None:
                return place
            # An entry has no name if it was written as a vector, or comes from a file of an earlier version.
            vector: Tensor | None = self._vectors(key)[0]
        else:
            vector = numbers(key)
        equal = [] if vector is None else self.entries.equal(vector)
        by_name = isinstance(key, str)
        return next((n for n in equal if not (by_name and self.entries.is_named(n))), None)

    def _key(self, place: int) -> Any:
        """The string that was written as the key of an entry, or its vector."""
        name = None if self.entries.names is None else self.entries.names[place]
        return self.entries.key_at(place) if name is None else name

    def _answer(self, place: int) -> Any:
        """The payload of an entry, or its value where it has none."""
        payload = None if self.entries.payloads is None else self.entries.payloads[place]
        return self.entries.value_at(place) if payload is None else payload

    def _at(self, positions: Tensor, answer: Callable[[int], Any]) -> list[Any]:
        def pick(nested: Any) -> Any:
            return [pick(one) for one in nested] if isinstance(nested, list) else answer(nested)

        picked: list[Any] = pick(positions.tolist())
        return picked

    def _values(self, values: Any) -> Tensor:
        if is_text(values):
            return self._vectors(values)
        tensor = numbers(values)
        return self._vectors(
            values if tensor is None or tensor.dim() != 1 else tensor.unsqueeze(-1)
        )

    def _vectors(self, queries: Any) -> Tensor:
        vectors = queries
        if not isinstance(queries, Tensor):
            if is_text(queries):
                return self._encoded(strings(queries))
            vectors = numbers(queries)
        count = None if vectors is None else vectors.dim()
        if not count:
            raise TypeError(f"got {short(queries)}: pass vectors, a string or a list of strings")
        if vectors is not queries and self.entries.like is not None:
            vectors = vectors.to(self.entries.like)
        vectors = floats(vectors)
        return vectors[None] if count == 1 else vectors  # a third of the time of unsqueeze

    def _encoded(self, text: list[str]) -> Tensor:
        if self.encoder is None:
            raise ValueError("got strings, and this memory has no encoder: pass encoder=")
        result = self.encoder(text)
        vectors = numbers(result)
        if vectors is None or vectors.dim() != 2 or vectors.shape[0] != len(text):
            raise TypeError(
                f"the encoder made {short(result)} of {len(text)} strings: it has to make a vector of each"
            )
        like = self.entries.like
        return floats(vectors if like is None else vectors.to(like))


def with_batch_axes(query: Tensor, mask: Any) -> Tensor:
    """The query with the batch axes that its reading has under this mask."""
    if not isinstance(mask, Tensor):
        return query
    batch = torch.broadcast_shapes(query.shape[:-2], mask.shape[:-2])
    return query.expand(*batch, *query.shape[-2:])


def _in_portions(
    search: Callable[[Tensor], tuple[Tensor, Tensor]], queries: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """The answers of a search to so many queries at a time."""
    answers = [search(rows) for rows in queries.split(max(1, count), dim=-2)]
    weights, positions = (torch.cat(each, dim=-2) for each in zip(*answers, strict=True))
    return weights, positions


def _none(place: int) -> None:
    return None
