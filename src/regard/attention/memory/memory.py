"""A dictionary that is read by similarity."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.attend import attend, look
from regard.attention.kernels.ties import level_best
from regard.attention.looks import Look
from regard.attention.memory.entries import Entries, Trainable
from regard.attention.memory.file import Contents, read_memory, write_memory
from regard.attention.normalisers import Hard, NormaliserLike, as_normaliser
from regard.attention.scores import Cosine, ScaledDot, ScoreLike, build
from regard.attention.torch_names import answers

Strings = str | Sequence[str]
SHOWN = 4  # entries that a repr lists
SHARPNESS = 20.0  # weights of 0.99 for an exact key among hundreds of strings

Alone = Float[Tensor, " width"]
Encoder = Callable[[list[str]], Any]


class EmptyMemoryError(ValueError):
    """A lookup in a memory that holds nothing yet."""


@dataclass(frozen=True)
class Found:
    """The entries that a query reads most; unpacks as ``weights, payloads``.

    Args:
        weights: Their weights, largest first; of equal ones the better score, then the first.
        payloads: The payloads stored with them, or None.
        positions: Their positions in the memory.
    """

    weights: Float[Tensor, "*batch found"]
    payloads: list[Any]
    positions: Int[Tensor, "*batch found"]

    def __repr__(self) -> str:
        return f"Found({_listing(self.weights.tolist(), self.payloads)})"

    def __iter__(self) -> Iterator[Any]:
        return iter((self.weights, self.payloads))


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

    Keys that were strings and payloads are part of ``state_dict()``, as JSON in tensors of bytes.
    A payload that JSON cannot hold is None there, with a warning; the others stay.
    """

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
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: Any) -> bool:
        """Whether this very key was written: the string, or the vector with these numbers."""
        return self._place(key) is not None

    def __iter__(self) -> Iterator[Any]:
        """The keys in their order: the string where one was written, else the vector."""
        names, keys = self.entries.names, self.keys
        for place in range(len(self)):
            name = None if names is None else names[place]
            yield name if name is not None or keys is None else keys[..., place, :]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Each key, as `iter` gives it, with its payload, or its value where it has none."""
        values = self.values
        for place, (key, payload) in enumerate(zip(self, self.payloads, strict=True)):
            absent = payload is None and values is not None
            yield key, values[..., place, :] if absent and values is not None else payload

    def __repr__(self) -> str:
        items = [f"{_short(key)}: {_short(item)}" for key, item in islice(self.items(), SHOWN)]
        more = ", …" if len(self) > SHOWN else ""
        parts = {"score": self.score, "normaliser": self.normaliser, "encoder": self.encoder}
        how = "".join(
            f", {name}={type(part).__name__ if isinstance(part, nn.Module) else part}"
            for name, part in parts.items()
            if part is not None
        )
        return f"Memory({{{', '.join(items)}{more}}}, entries={len(self)}{how})"

    def __copy__(self) -> Memory:
        """A memory with the same tensors that is written to by itself."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__["_modules"] = self._modules | {"entries": copy(self.entries)}
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

        Args:
            keys: The keys: vectors, or strings for the encoder. A string
                or a vector alone is one entry. A dict is its keys and their values.
            values: The values: vectors, one number each, or strings, which are encoded for
                blending and kept as payloads. The keys by default.
            payloads: Any object for each entry, handed back by `find` and by a hard lookup.

        Raises:
            ShapeError: If the numbers or widths do not fit each other or earlier writes.
            ValueError: If there are strings and no encoder.
        """
        if isinstance(keys, Mapping):
            if values is not None or payloads is not None:
                raise TypeError(
                    "got a dict and values or payloads as well: a dict holds its values"
                )
            if not keys:
                return
            (values, payloads), keys = _columns(list(keys.values())), list(keys)
        key = self._vectors(keys)
        value = None if values is None else self._values(values)
        if payloads is None and values is not None and _is_text(values):
            payloads = _strings(values)
        self.entries.append(key, value, payloads, _strings(keys) if _is_text(keys) else None)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write one entry, or replace that of this very key.

        Args:
            key: a string or a vector.
            value: a string, a vector or a number; any other object becomes the payload alone.
        """
        if not _alone(key):
            raise TypeError(f"got {key!r} as a key: pass a string or a vector, or use write")
        values, payloads = _columns([value])
        place = self._place(key)
        if place is None:
            self.write(key, values, payloads)
            return
        vector = None if values is None else self._values(values)
        if values is not None and _is_text(values):
            payloads = values
        self.entries.replace(place, vector, None if payloads is None else payloads[0])

    def read(
        self, queries: Float[Tensor, "*batch queries d_key"] | Strings, *, mask: Any = None
    ) -> Float[Tensor, "*batch queries d_value"]:
        """The blended values; zero where there is nothing to read, as in an empty memory."""
        query = self._vectors(queries)
        if self.keys is None or self.values is None:
            width = self.entries.d_value or self.entries.d_key or query.shape[-1]
            return query.new_zeros((*query.shape[:-1], width))
        return attend(query, self.keys, self.values, mask=mask, **self._how())

    forward = read

    def look(
        self, queries: Float[Tensor, "*batch queries d_key"] | Strings, *, mask: Any = None
    ) -> Look:
        """A look at the weights of a reading."""
        return look(self._vectors(queries), self._filled_keys(), mask=mask, **self._how())

    def __getitem__(self, query: Any) -> Any:
        """The payload of the entry that a hard lookup reads; else the best one, or the reading.

        A string or vector gives one answer, several give several. There is always an answer, so
        never a KeyError. Where the weights blend, strings are answered by ``find(query, 1)``, the best
        payload with its weight. Vectors, and strings where there are no payloads, give the
        reading, a tensor.

        Raises:
            EmptyMemoryError: If nothing was written yet.
        """
        vectors, keys, alone = self._vectors(query), self._filled_keys(), _alone(query)
        hard, payloads = isinstance(self.normaliser, Hard), self.entries.payloads
        if payloads is not None and not hard and _is_text(query):
            return self.find(query, 1)
        if payloads is None or not hard:
            reading = self.read(vectors)
            return reading[..., 0, :] if alone else reading
        weights = look(vectors, keys, **self._how()).weights()
        answers = self._payloads_at(weights.argmax(-1))
        return answers[0] if alone else answers

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
        if k < 1:
            raise ValueError(f"k is {k}: pass at least 1")
        vectors, alone = self._vectors(query), _alone(query)
        if not len(self) or self.keys is None:
            weights = vectors.new_zeros((*vectors.shape[:-1], 0))
            positions = weights.long()
        else:
            pair = (vectors, self.keys)
            weights = level_best(look(*pair, **self._how()).weights(), *pair)
            scores = level_best((self.score or ScaledDot())(*pair), *pair)
            by_score = scores.argsort(dim=-1, descending=True, stable=True)
            by_weight = weights.gather(-1, by_score).argsort(dim=-1, descending=True, stable=True)
            positions = by_score.gather(-1, by_weight)[..., :k]
            weights = weights.gather(-1, positions)
        if alone:
            weights, positions = weights[..., 0, :], positions[..., 0, :]
        return Found(weights, self._payloads_at(positions), positions)

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
        kept = self.entries
        parts = (self.score, self.normaliser, self.encoder)
        write_memory(path, Contents(kept.key, kept.value, kept.payloads, kept.names, *parts))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        encoder: Encoder | None = None,
        trainable: Trainable = False,
    ) -> Memory:
        """A memory that was saved. The file is data only: nothing in it is ever run.

        Args:
            path: The file.
            score: In place of the saved one; needed where that was not one of ours.
            normaliser: Likewise.
            encoder: Likewise, once there are strings to encode.
            trainable: As in the constructor.

        Raises:
            MemoryFileError: If the file is damaged, hostile or of another kind.
            OSError: If the file cannot be read.
        """
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

    def _how(self) -> dict[str, Any]:
        return {"score": self.score, "normaliser": self.normaliser}

    def _filled_keys(self) -> Tensor:
        if self.keys is None or not len(self):
            raise EmptyMemoryError("the memory is empty: write entries before looking one up")
        return self.keys

    def _place(self, key: Any) -> int | None:
        """The place of the first entry with this very key, or None."""
        if isinstance(key, str):
            if self.entries.names is not None or self.encoder is None:
                return self.entries.place(key)
            key = self._vectors(key)[0]  # a file of an earlier version has no names
        keys = self.keys
        if keys is None or keys.dim() > 2 or not isinstance(key, Tensor | Sequence):
            return None
        vector = torch.as_tensor(key)
        if vector.shape != keys.shape[-1:]:
            return None
        equal = (keys == vector.to(keys)).all(-1).nonzero()
        return int(equal[0]) if len(equal) else None

    def _payloads_at(self, positions: Tensor) -> list[Any]:
        stored = self.payloads

        def pick(nested: Any) -> Any:
            return [pick(one) for one in nested] if isinstance(nested, list) else stored[nested]

        picked: list[Any] = pick(positions.tolist())
        return picked

    def _values(self, values: Any) -> Tensor:
        if not _is_text(values) and not isinstance(values, Tensor):
            values = torch.as_tensor(values)
        if isinstance(values, Tensor) and values.dim() == 1:
            values = values.unsqueeze(-1)
        return self._vectors(values)

    def _vectors(self, what: Any) -> Tensor:
        if _is_text(what):
            if self.encoder is None:
                raise ValueError("got strings, and this memory has no encoder: pass encoder=")
            what = self.encoder([what] if isinstance(what, str) else list(what))
            if not isinstance(what, Tensor):
                what = torch.stack([torch.as_tensor(vector) for vector in what])
            what = what if self.keys is None else what.to(self.keys)
        vectors = torch.as_tensor(what)
        if vectors.dim() == 0:
            raise TypeError(f"got {what!r}: pass vectors, a string or a list of strings")
        if not vectors.is_floating_point():
            vectors = vectors.to(torch.get_default_dtype())
        return vectors.unsqueeze(0) if vectors.dim() == 1 else vectors


def _is_text(what: Any) -> bool:
    """Whether these are strings; a list without anything in it is not."""
    return isinstance(what, str) or (
        isinstance(what, (list, tuple))
        and len(what) > 0
        and all(isinstance(one, str) for one in what)
    )


def _strings(text: Any) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


def _columns(objects: list[Any]) -> tuple[Any, list[Any] | None]:
    """The objects as values, if they are strings, vectors or numbers; else as payloads."""
    if all(isinstance(each, Tensor) for each in objects):
        return torch.stack([each.reshape(-1) for each in objects]), None
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in objects)
    return (objects, None) if numbers or _is_text(objects) else (None, objects)


def _short(item: Any) -> str:
    """An object on a line, at most some words of it."""
    return f"a vector of {item.shape[-1]}" if isinstance(item, Tensor) else reprlib.repr(item)


def _listing(weights: list[Any], payloads: list[Any]) -> str:
    pairs = zip(weights, payloads, strict=True)
    if weights and isinstance(weights[0], list):
        return ", ".join(f"[{_listing(*pair)}]" for pair in pairs)
    return ", ".join(f"{weight:.2f} {_short(payload)}" for weight, payload in pairs)


def _alone(query: Any) -> bool:
    return isinstance(query, str) or (not _is_text(query) and torch.as_tensor(query).dim() == 1)
