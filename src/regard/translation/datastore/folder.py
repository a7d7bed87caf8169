"""The folder of a datastore.

    sentences/           source and target of each pair
    states/              for each target token a row: the code of the state before it, its list, the token
    space.safetensors    how states become codes
    words-CHECKSUM.json  the words of the sources and of the targets

Both folders are memories: they have checksums, a lock and transactions. Pairs are written before their states, so an
interruption leaves pairs whose states are still to come.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.dataclasses import dataclass
from torch import Tensor

from regard import files
from regard.errors import ConfigurationError, CorruptedError, ModelError, one_line, raised_as
from regard.memory.store import Store
from regard.translation import checksums
from regard.translation.datastore.sentences import Example, Sentences, blaming
from regard.translation.datastore.space import COMPONENTS, Space
from regard.translation.datastore.table import Table
from regard.translation.text.tokenizer import EOS

SENTENCES, STATES, SPACE = "sentences", "states", "space.safetensors"
_WORDS = TypeAdapter(tuple[str, str])
_LIST, _TOKEN = np.dtype("<u2"), np.dtype("<u4")


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Mixing:
    """How the next token is mixed: (1 - weight) p_model + weight softmax(-distance / temperature) over the nearest.

    The softmax has one more term, at the distance `reach`, whose share the model gets: of states that are like none of
    the stored ones, a memory says nothing.

    Attributes:
        neighbours: entries that are mixed.
        temperature: in units of the mean squared distance of states to their mean.
        reach: in the same units.
        weight: of the datastore.
        similar: read the entries of so many similar sentence pairs.
        likeness: divide their distances by 1 + likeness s, where s is the similarity of the pair, at most about 1.
        lists: read so many lists of near states. An entry that is read in both ways counts twice.
    """

    neighbours: Annotated[int, Field(ge=1, le=1024)] = 8
    temperature: Annotated[float, Field(gt=0, le=1000)] = 0.2
    reach: Annotated[float, Field(gt=0, le=1000)] = 1.0
    weight: Annotated[float, Field(ge=0, lt=1)] = 0.3
    similar: Annotated[int, Field(ge=0, le=1024)] = 0
    likeness: Annotated[float, Field(ge=0, le=1000)] = 0.0
    lists: Annotated[int, Field(ge=0, le=65536)] = 4

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Raises `ConfigurationError` for a setting out of its range, and where nothing would be read."""
        try:
            mixing = cls(**settings)
        except ValidationError as fault:
            error = fault.errors()[0]
            name = ".".join(map(str, error["loc"]))
            raise ConfigurationError(f"{name} {error['input']!r}: {error['msg'].lower()}") from None
        if not (mixing.similar or mixing.lists):
            raise ConfigurationError(
                "similar 0 and lists 0 read nothing of the memory: read similar pairs, or lists of near states"
            )
        return mixing

    def changed(self, **settings: Any) -> Mixing:
        return Mixing.of(**asdict(self) | settings)


class Datastore:
    """Sentence pairs and the decoder's states, of one model.

    Args:
        folder: made where it is not there, if `write`.
        model: the checksum of the model and its tokenizers.
        write: whether pairs may be added, by one process at a time.

    Raises:
        ModelError: it is of another model, damaged, or being written to.
    """

    def __init__(self, folder: str | Path, model: str, *, write: bool = False) -> None:
        self.folder, self._open = Path(folder), ExitStack()
        if not write and not self.folder.is_dir():
            raise ModelError(f"{folder}: no such folder: make it with `regard remember`")
        try:
            with blaming(self.folder):
                self._sentences = Sentences(self.folder / SENTENCES, write=write)
                self._open.callback(self._sentences.close)
                self._states = Store(self.folder / STATES, write=write)
                self._open.callback(self._states.close)
                content = self._states.state.components
                if content is None and write:
                    content = {"model": model}
                    self._states.set_components(content)
                self._check(content, model)
                self.space = self._read_space()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def __len__(self) -> int:
        """The entries, one for each target token."""
        return self._states.state.rows

    @property
    def mixing(self) -> Mixing:
        """As it was chosen by a tuning."""
        return TypeAdapter(Mixing).validate_python(self._content.get("mixing", {}))

    def set_mixing(self, mixing: Mixing) -> None:
        self._commit(mixing=asdict(mixing))

    def add(self, pairs: Sequence[tuple[str, str]]) -> int:
        """Write the pairs that are not there, in this order; their number."""
        with blaming(self.folder):
            return self._sentences.add(pairs)

    @property
    def words(self) -> tuple[str, str]:
        """The words of the sources and those of the targets, with spaces between them."""
        expected = self._content.get("words")
        if expected is None:
            return "", ""
        path = self._words_path(expected)
        return checksums.parsed(_WORDS, checksums.content(path, expected), path, "two texts")

    def set_words(self, sources: str, targets: str) -> None:
        content = json.dumps([sources, targets], ensure_ascii=False).encode()
        digest, replaced = checksums.sha256(content), self._content.get("words")
        with raised_as(ModelError, f"{self.folder}: cannot be written"):
            files.write(self._words_path(digest), content)
            self._commit(words=digest)
            if replaced not in (None, digest):
                self._words_path(replaced).unlink(missing_ok=True)

    def _words_path(self, digest: str) -> Path:
        return self.folder / f"words-{digest[:12]}.json"

    @property
    def sentences(self) -> int:
        """How many pairs there are."""
        return len(self._sentences)

    def pairs(self, start: int = 0) -> Iterator[Example]:
        """The pairs from a number on."""
        with blaming(self.folder):
            yield from self._sentences.pairs(start)

    def pair(self, number: int) -> Example:
        with blaming(self.folder):
            return self._sentences.pair(number)

    def similar(self, texts: list[str], count: int) -> tuple[Tensor, Tensor]:
        """The pairs whose sources are most similar to each text, and how similar (see `WordIndex.most_similar`)."""
        with blaming(self.folder):
            return self._sentences.index.most_similar(texts, count)

    def pairs_with_states(self) -> int:
        """How many pairs have their states: the first ones."""
        return int((self._rows()[1] == EOS).sum())

    def fit(self, space: Space) -> None:
        """Keep the space of all states to come."""
        space.write(self.folder / SPACE)
        self._commit(space=checksums.of(self.folder / SPACE))
        self.space = space

    def append(self, states: Tensor, tokens: Tensor) -> None:
        """Write the states before tokens, of whole sentences with their ends."""
        assert self.space is not None
        points = self.space.project(states)
        columns = (
            self.space.codes(points).numpy().view(np.uint8),
            self.space.lists(points).numpy().astype(_LIST)[:, None].view(np.uint8),
            tokens.cpu().numpy().astype(_TOKEN)[:, None].view(np.uint8),
        )
        rows = torch.from_numpy(np.concatenate(columns, 1))
        kinds = {"keys": ("uint8", rows.shape[1]), "values": None}
        with blaming(self.folder):
            self._states.append(rows, None, None, None, kinds)

    def tables(self, *, lists: bool, sentences: bool) -> tuple[Table, Table]:
        """All entries by their lists, and by their sentences; empty tables where they are not wanted."""
        assert self.space is not None or not len(self)
        codes, tokens, list_of = self._rows()
        ends = tokens == EOS  # a sentence ends with its end token
        by_sentence = Table(
            codes,
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(np.cumsum(ends) - ends),
            np.concatenate([[0], np.flatnonzero(ends) + 1]),
        )
        by_list = Table.empty()
        if lists:
            count = 0 if self.space is None else len(self.space.centroids)
            starts = np.concatenate([[0], np.cumsum(np.bincount(list_of, minlength=count))])
            by_list = by_sentence.reordered(np.argsort(list_of, kind="stable"), starts)
        return by_list, by_sentence if sentences else Table.empty()

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes, tokens and lists of all entries."""
        with blaming(self.folder):
            spans = self._states.spans()
            if not spans:
                nothing = np.zeros(0, np.int64)
                return Table.empty().codes, nothing, nothing
            rows = np.concatenate([self._states.vectors("keys").read(*span) for span in spans])
        width = rows.shape[1] - _LIST.itemsize - _TOKEN.itemsize
        codes, lists, tokens = np.split(rows, [width, width + _LIST.itemsize], 1)
        return (
            np.ascontiguousarray(codes).view(np.int8),
            np.ascontiguousarray(tokens).view(_TOKEN)[:, 0],
            np.ascontiguousarray(lists).view(_LIST)[:, 0],
        )

    @property
    def _content(self) -> dict[str, Any]:
        return self._states.state.components or {}

    def _commit(self, **content: Any) -> None:
        with blaming(self.folder):
            self._states.set_components(self._content | content)

    def _check(self, content: dict[str, Any] | None, model: str) -> None:
        if not isinstance(content, dict) or not isinstance(content.get("model"), str):
            raise CorruptedError(f"{self.folder}: damaged: it does not say of which model it is")
        if content["model"] != model:
            raise ModelError(
                f"{self.folder}: was made with another model or tokenizer (sha256 {content['model'][:12]}..., this one "
                f"has {model[:12]}...): open that model, or remove the folder and make it again with `regard remember`"
            )
        try:
            self.mixing  # noqa: B018
        except ValidationError as fault:
            raise CorruptedError(f"{self.folder}: damaged: {one_line(fault)}") from None

    def _read_space(self) -> Space | None:
        expected, path = self._content.get("space"), self.folder / SPACE
        if expected is None:
            return None
        checksums.content(path, expected)
        space = Space.read(path)
        if space.directions.shape[1] != COMPONENTS:
            raise ModelError(
                f"{self.folder}: was made by an earlier version: remove it, and make it again with `regard remember`"
            )
        return space


def fingerprint(weights: Sequence[tuple[str, Tensor]], tokenizers: Sequence[bytes]) -> str:
    """The checksum of a model's weights and of its tokenizers."""
    digest = hashlib.sha256()
    for name, tensor in weights:
        content = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
        digest.update(content.reshape(-1).view(torch.uint8).numpy().data)
    for tokenizer in tokenizers:
        digest.update(tokenizer)
    return digest.hexdigest()
