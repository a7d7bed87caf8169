"""Embeddings that are initialised by pretrained word vectors (Qi et al. 2018, arXiv 1804.06323)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers
from regard.translation.settings.training import PretrainedSettings
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.reporting import Observer
from regard.translation.training.vectors import Vectors, read_vectors

_SPACE = "▁"
_LETTERS = re.compile(r"[^\W_]+")


def set_embeddings(
    model: TranslationModel,
    section: PretrainedSettings,
    tokenizers: Tokenizers,
    pairs: list[Pair],
    folder: Path | None,
    observer: Observer,
) -> None:
    """Set the embeddings of a new model to vectors. Pieces without a vector keep their random embedding.

    Raises:
        DataError: a file cannot be read.
    """
    tables: dict[nn.Parameter, list[tuple[NDArray[np.int64], torch.Tensor]]] = {}
    for side, name in section.files.items():
        tokenizer: Tokenizer = getattr(tokenizers, side)
        path, weight = (folder or Path()) / name, _embedding(model, side)
        counts = Counter(words_of(getattr(pair, side) for pair in pairs))
        found = read_vectors(path, _forms(tokenizer, counts))
        ids, vectors = match(tokenizer, counts, found)
        known = sum(count for word, count in counts.items() if found.vector(word) is not None)
        pieces, width = sum(map(tokenizer.is_text, range(len(tokenizer)))), weight.shape[1]
        told = (
            f"{path}: {len(ids):,} of {pieces:,} pieces ({len(ids) / max(1, pieces):.1%}) and "
            f"{known / max(1, counts.total()):.1%} of the words of the text have a vector"
        )
        if found.width != width:
            how = "projected to" if found.width > width else "in the first columns of"
            told += f"; width {found.width} {how} {width}"
        if found.repeated:
            told += f"; {found.repeated:,} repeated words are ignored"
        observer.note(told)
        tables.setdefault(weight, []).append((ids, fit(vectors, weight.detach())))
    with torch.no_grad():
        for weight, rows in tables.items():
            _set(weight, rows)


def freeze(model: TranslationModel, section: PretrainedSettings) -> None:
    """Exclude the embeddings that have a file from training."""
    for side in section.files:
        _embedding(model, side).requires_grad_(False)


def match(
    tokenizer: Tokenizer, counts: Counter[str], found: Vectors
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pieces that have a vector, ascending, and their vectors (pieces x width).

    A piece that is a whole word or punctuation gets the vector of that word. Any other piece gets the mean vector of
    the words of the text that contain it, weighted by their counts (Minixhofer et al. 2022, WECHSEL, arXiv 2112.06598).
    """
    size = len(tokenizer)
    sums, mass = np.zeros((size, found.width)), np.zeros(size)
    for word, count in counts.items():
        own = found.vector(word)
        if own is not None:
            for piece in tokenizer.encode(word):
                sums[piece] += count * own.astype(np.float64)
                mass[piece] += count
    names = tokenizer.pieces(range(size))
    texts = [i for i in range(size) if tokenizer.is_text(i)]
    for i in texts:
        whole = names[i].removeprefix(_SPACE)
        if names[i].startswith(_SPACE) or not _LETTERS.search(whole):
            own = found.vector(whole)
            if own is not None:
                sums[i], mass[i] = own, 1.0
    ids = np.array([i for i in texts if mass[i] > 0], dtype=np.int64)
    return ids, sums[ids] / mass[ids, None]


def fit(vectors: NDArray[np.float64], table: torch.Tensor) -> torch.Tensor:
    """Vectors with the width of a table, scaled to the root mean square of its random values.

    Wider vectors are projected to their first principal directions, which preserves their products best (Eckart and
    Young 1936). Narrower ones fill the first columns only.
    """
    width = table.shape[1]
    if vectors.shape[1] > width:
        _, directions = np.linalg.eigh(vectors.T @ vectors)
        directions = directions[:, ::-1][:, :width]
        # Of the two signs of a direction, take the one that makes its largest component positive.
        largest = np.abs(directions).argmax(0)
        vectors = vectors @ (directions * np.sign(directions[largest, np.arange(width)]))
    size = float(np.sqrt((vectors**2).mean())) if vectors.size else 0.0
    drawn = float(table.double().pow(2).mean().sqrt())
    return torch.from_numpy(vectors * (drawn / size if size > 0 else 1.0)).to(table.dtype)


def words_of(lines: Iterable[str]) -> Iterator[str]:
    """The words of a text: runs of letters and digits, as in lists of word vectors.

    >>> list(words_of(["L'eau, 20 € !"]))
    ['L', 'eau', '20']
    """
    for line in lines:
        yield from _LETTERS.findall(line)


def _embedding(model: TranslationModel, side: str) -> nn.Parameter:
    weight = getattr(model, f"{side}_embedding").weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _forms(tokenizer: Tokenizer, counts: Counter[str]) -> set[str]:
    """All words that `match` may look up: those of the text, and pieces that are words."""
    pieces = {piece.removeprefix(_SPACE) for piece in tokenizer.pieces(range(len(tokenizer)))}
    return {form for word in (*counts, *pieces) for form in (word, word.lower()) if form}


def _set(weight: torch.Tensor, tables: list[tuple[NDArray[np.int64], torch.Tensor]]) -> None:
    """Set rows to their vectors. A row with a vector of each language, in a shared table, gets their mean."""
    sums, counts = torch.zeros_like(weight), weight.new_zeros(len(weight), 1)
    for ids, vectors in tables:
        rows = torch.from_numpy(ids)
        sums[rows, : vectors.shape[1]] += vectors
        counts[rows] += 1
    narrow = max(vectors.shape[1] for _, vectors in tables)
    new = torch.where(counts > 0, sums / counts.clamp(min=1), weight)
    weight[:, :narrow] = new[:, :narrow]
