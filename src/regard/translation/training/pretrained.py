"""Embeddings that begin as word vectors of others (Qi et al. 2018, arXiv 1804.06323), piece by piece."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers
from regard.translation.settings import Configuration
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training import checkpoints
from regard.translation.training.events import Observer
from regard.translation.training.loop import Trainer
from regard.translation.training.vectors import Vectors, read_vectors

_SPACE = "▁"
_LETTERS = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Matched:
    """Vectors of pieces.

    Attributes:
        ids: the pieces that have one, ascending.
        vectors: theirs (pieces x width).
        pieces: how many pieces there are that could have one: those that are text.
        words: the share of the text's words that have a vector.
    """

    ids: NDArray[np.int64]
    vectors: NDArray[np.float64]
    pieces: int
    words: float


def begin(
    trainer: Trainer,
    tokenizers: Tokenizers,
    pairs: list[Pair],
    folder: Path | None,
    observer: Observer,
) -> None:
    """Give a new model's embeddings the vectors that `[pretrained]` names, and save it as the first checkpoint.

    What has no vector stays as it was drawn.

    Raises:
        DataError: a file cannot be read.
    """
    model, section = trainer.model, trainer.configuration.pretrained
    if section is None:
        return
    tables: dict[int, list[tuple[NDArray[np.int64], torch.Tensor]]] = {}
    embeddings = {side: _embedding(model, side) for side in ("source", "target")}
    for side, name in (("source", section.source), ("target", section.target)):
        if name is None:
            continue
        tokenizer: Tokenizer = getattr(tokenizers, side)
        path = (folder or Path()) / name
        counts = Counter(words_of(getattr(pair, side) for pair in pairs))
        found = read_vectors(path, _forms(tokenizer, counts))
        matched = match(tokenizer, counts, found)
        table = embeddings[side]
        observer.note(_told(path, matched, found, table.embedding_dim))
        fitted = fit(matched.vectors, table.weight.detach())
        tables.setdefault(id(table.weight), []).append((matched.ids, fitted))
    with torch.no_grad():
        for table in dict.fromkeys(embeddings.values()):
            _set(table.weight, tables.get(id(table.weight), []))
    if trainer.processes.first:
        checkpoints.save(trainer.run, trainer.progress, model, trainer.optimiser)


def freeze(model: TranslationModel, configuration: Configuration) -> None:
    """Let the embeddings that began as vectors stay what they are, where `[pretrained]` says so."""
    section = configuration.pretrained
    if section is None or not section.frozen:
        return
    for side, name in (("source", section.source), ("target", section.target)):
        if name is not None:
            _embedding(model, side).weight.requires_grad_(False)


def match(tokenizer: Tokenizer, counts: Counter[str], found: Vectors) -> Matched:
    """Vectors for pieces.

    A piece that is a whole word has that word's vector, as has punctuation. Another one has the mean over the text's
    words it occurs in, each as often as it stands there: what Minixhofer et al. 2022 (WECHSEL, arXiv 2112.06598) do
    with vectors that know no subwords. A word that is not found as it is written is looked for in small letters.
    """

    def vector(word: str) -> NDArray[np.float32] | None:
        own = found.words.get(word)
        return found.words.get(word.lower()) if own is None else own

    size = len(tokenizer)
    sums, mass = np.zeros((size, found.width)), np.zeros(size)
    known = 0
    for word, count in counts.items():
        own = vector(word)
        if own is None:
            continue
        known += count
        for piece in tokenizer.encode(word):
            sums[piece] += count * own.astype(np.float64)
            mass[piece] += count
    names = tokenizer.pieces(range(size))
    texts = [i for i in range(size) if tokenizer.is_text(i)]
    for i in texts:
        whole = names[i].removeprefix(_SPACE)
        if names[i].startswith(_SPACE) or not _LETTERS.search(whole):
            own = vector(whole)
            if own is not None:
                sums[i], mass[i] = own, 1.0
    ids = np.array([i for i in texts if mass[i] > 0], dtype=np.int64)
    return Matched(ids, sums[ids] / mass[ids, None], len(texts), known / max(1, counts.total()))


def fit(vectors: NDArray[np.float64], table: torch.Tensor) -> torch.Tensor:
    """Vectors as wide as a table, and as large on average as what was drawn for it.

    Wider ones are projected to their first principal directions, which keeps their products best (Eckart and Young
    1936); narrower ones are given no more than their columns.
    """
    width = table.shape[1]
    if vectors.shape[1] > width:
        _, directions = np.linalg.eigh(vectors.T @ vectors)
        directions = directions[:, ::-1][:, :width]
        # A direction has two signs: the one in which its largest part is positive.
        largest = np.abs(directions).argmax(0)
        vectors = vectors @ (directions * np.sign(directions[largest, np.arange(width)]))
    size = float(np.sqrt((vectors**2).mean())) if vectors.size else 0.0
    drawn = float(table.double().pow(2).mean().sqrt())
    return torch.from_numpy(vectors * (drawn / size if size > 0 else 1.0)).to(table.dtype)


def words_of(lines: Iterable[str]) -> Iterator[str]:
    """The words of text as lists of vectors have them: runs of letters and digits.

    >>> list(words_of(["L'eau, 20 € !"]))
    ['L', 'eau', '20']
    """
    for line in lines:
        yield from _LETTERS.findall(line)


def _embedding(model: TranslationModel, side: str) -> nn.Embedding:
    table = getattr(model, f"{side}_embedding")
    assert isinstance(table, nn.Embedding)
    return table


def _forms(tokenizer: Tokenizer, counts: Counter[str]) -> set[str]:
    """Every word that could be of use: of the text, and the pieces that are words themselves."""
    pieces = {piece.removeprefix(_SPACE) for piece in tokenizer.pieces(range(len(tokenizer)))}
    return {form for word in (*counts, *pieces) for form in (word, word.lower()) if form}


def _set(weight: torch.Tensor, tables: list[tuple[NDArray[np.int64], torch.Tensor]]) -> None:
    """Give rows their vectors; one that has several (of one table for both languages) has their mean."""
    if not tables:
        return
    sums, counts = torch.zeros_like(weight), weight.new_zeros(len(weight), 1)
    for ids, vectors in tables:
        rows = torch.from_numpy(ids)
        sums[rows, : vectors.shape[1]] += vectors
        counts[rows] += 1
    narrow = max(vectors.shape[1] for _, vectors in tables)
    new = torch.where(counts > 0, sums / counts.clamp(min=1), weight)
    weight[:, :narrow] = new[:, :narrow]


def _told(path: Path, matched: Matched, found: Vectors, width: int) -> str:
    share = len(matched.ids) / max(1, matched.pieces)
    text = (
        f"{path}: vectors of {len(matched.ids):,} of {matched.pieces:,} pieces ({share:.1%}), "
        f"known are {matched.words:.1%} of the words of the text"
    )
    if found.width > width:
        text += f"; width {found.width} projected to {width}"
    elif found.width < width:
        text += f"; width {found.width} in the first columns of {width}"
    return text + (f"; {found.repeated:,} words came again" if found.repeated else "")
