"""Where a sentence ends and another begins, in text without the marks that say so."""

import base64
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from random import Random
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

_SIZE = 2**16
_SCALE = 16.0  # of the weights, which are stored as bytes
_PASSES, _BATCH, _RATE = 6, 8192, 0.5
# With fewer sentences nothing is learnt.
_FEWEST = 1000
# So probable must an end be, and so many words a sentence must have.
_SURE, _SHORTEST = 0.6, 2
_MOST_SENTENCES = 200_000
_MARKS = " ,;:.!?¡¿…\"'()[]«»-—"


class Boundaries(BaseModel):
    """The odds that a sentence ends between two words, by these and their neighbours.

    A logistic regression on hashed features (Weinberger et al. 2009, arXiv 0902.2206).

    Attributes:
        weights: of the features, one byte each, compressed, in base 64.
        bias: the logit without features.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    weights: str
    bias: float

    @classmethod
    def learn(cls, sentences: Sequence[str]) -> Self | None:
        """Those of sentences in a random order, without capitals and final marks; None for few sentences."""
        if len(sentences) < _FEWEST:
            return None
        random = Random(1)
        sample = random.sample(sentences, min(len(sentences), _MOST_SENTENCES))
        words, ends = list[str](), list[bool]()
        for sentence in sample:
            sentence_words = _words(sentence)
            words += sentence_words
            ends += [False] * (len(sentence_words) - 1) + [True] * bool(sentence_words)
        features = np.array(list(_features(words)), dtype=np.int64)
        labels = np.array(ends[:-1], dtype=np.float64)
        weights, squares = np.zeros(_SIZE), np.full(_SIZE, 1e-6)
        bias = float(np.log(labels.mean() / (1 - labels.mean())))
        order = np.random.default_rng(1)
        for _ in range(_PASSES):
            for rows in np.array_split(
                order.permutation(len(labels)), max(1, len(labels) // _BATCH)
            ):
                errors = 1 / (1 + np.exp(-bias - weights[features[rows]].sum(1))) - labels[rows]
                repeated = np.repeat(errors, features.shape[1])
                gradient = np.bincount(features[rows].ravel(), repeated, _SIZE)
                squares += gradient**2
                weights -= _RATE * gradient / np.sqrt(squares)
        quantised = np.clip(np.rint(weights * _SCALE), -127, 127).astype(np.int8)
        return cls(
            weights=base64.b64encode(zlib.compress(quantised.tobytes(), 9)).decode(),
            bias=round(bias, 4),
        )

    def divided(self, text: str) -> list[str]:
        """The sentences of a text without marks between them."""
        spelling = text.split()
        words = _words(text)
        if len(words) != len(spelling) or len(words) < 2 * _SHORTEST:
            return [text]
        features = np.array(list(_features(words)), dtype=np.int64)
        logits = self.bias + self._weights[features].sum(1)
        limit = float(np.log(_SURE / (1 - _SURE)))
        sentences, begin = list[str](), 0
        for place in np.flatnonzero(logits > limit).tolist():
            if place + 1 - begin >= _SHORTEST and len(words) - place - 1 >= _SHORTEST:
                sentences.append(" ".join(spelling[begin : place + 1]))
                begin = place + 1
        return [*sentences, " ".join(spelling[begin:])]

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        content = zlib.decompressobj().decompress(base64.b64decode(self.weights), _SIZE)
        return np.frombuffer(content.ljust(_SIZE, b"\0"), dtype=np.int8) / _SCALE


def _words(text: str) -> list[str]:
    return text.lower().rstrip(" .!?…").split()


def _features(words: Sequence[str]) -> Iterator[list[int]]:
    """For each place between two words the numbers of its features: words, their endings, and marks."""
    bare = ["", *(word.strip(_MARKS) for word in words), ""]
    endings = [word[-3:] for word in bare]
    for place in range(1, len(words)):
        far, previous, word, beyond = bare[place - 1 : place + 3]
        end, begin = endings[place : place + 2]
        marks = (
            words[place - 1][len(words[place - 1].rstrip(_MARKS)) :],
            words[place][:1].strip("abcdefghijklmnopqrstuvwxyz"),
        )
        names = (
            *(previous, word, f"{previous} {word}", f"{far} {previous}", f"{word} {beyond}"),
            *(far, beyond),
            *(end, begin, f"{end} {begin}", f"{previous} {begin}", f"{end} {word}"),
            *(
                f"{marks[0]} {marks[1][:1] if not marks[1].isalnum() else ''}",
                f"{endings[place - 1]} {end}",
                f"{begin} {endings[place + 2]}",
            ),
        )
        yield [zlib.crc32(f"{number} {name}".encode()) % _SIZE for number, name in enumerate(names)]
