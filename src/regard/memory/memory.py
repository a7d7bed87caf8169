"""A dictionary that is read by similarity."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.constants import whole
from regard.attention.normalisers import NormaliserLike
from regard.attention.scores import ScaledDot, ScoreLike
from regard.attention.shapes import ShapeError
from regard.attention.torch_names import answers
from regard.memory.entries import Entries, Trainable
from regard.memory.file import Contents, read_memory, write_memory
from regard.memory.found import EmptyMemoryError, Found
from regard.memory.objects import (
    as_rows,
    as_value,
    is_alone,
    is_array,
    is_text,
    numbers,
    short,
    strings,
)
from regard.memory.reading import EMPTY, Encoder, ReadableEntries

SHOWN = 4  # entries that a repr lists
FINAL = "write the entries to keep, those of items(), into a new memory"
ABSENT = {  # advice for the methods of a dict that are absent
    **dict.fromkeys(("pop", "popitem", "clear"), f"nothing is deleted: {FINAL}"),
    "setdefault": "write `if key not in memory: memory[key] = value`",
}

Alone = Float[Tensor, " width"]


class Memory(ReadableEntries):
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
        super().__init__(Entries(d_key, d_value, trainable), score, normaliser, encoder)

    def __getattr__(self, name: str) -> Any:
        """As in nn.Module, with advice for an absent method of a dict."""
        if name in ABSENT:
            raise AttributeError(f"a Memory has no {name}: {ABSENT[name]}")
        return super().__getattr__(name)

    def __delitem__(self, key: Any) -> None:
        raise TypeError(f"an entry of a Memory cannot be deleted: {FINAL}")

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
        is_alone = values is None and payloads is None
        if is_alone and isinstance(keys, Tensor) and self.entries.append_keys(keys):
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
        weights, positions = self._best_entries(vectors, k)
        if alone:
            weights, positions = weights[..., 0, :], positions[..., 0, :]
        payloads = self.entries.payloads
        return Found(
            weights, self._at(positions, payloads.__getitem__ if payloads else _none), positions
        )

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
        if not os.path.lexists(path):
            advice = "there is no such file or folder: write=True makes a folder"
            raise FileNotFoundError(errno.ENOENT, advice, os.fspath(path))
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


def _none(place: int) -> None:
    return None
