"""A small model with every property a search relies on, and all its translations for an oracle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.looks import StoredLook
from regard.translation.decoding import beam as beams
from regard.translation.decoding import search as searches
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits
from regard.translation.engines import SearchEngine
from regard.translation.models.protocol import TranslationModel, Watched
from regard.translation.settings.search import Search

PAD, UNK, BOS, EOS = 0, 1, 2, 3


@dataclass
class Sources:
    meaning: Tensor

    def select(self, rows: Tensor) -> Sources:
        return Sources(self.meaning[rows])


class Told:
    """A state that refuses to be read twice."""

    def __init__(self, sources: Sources, memory: Tensor) -> None:
        self.sources, self.memory, self.spent = sources, memory, False

    def take(self) -> None:
        assert not self.spent, "a state that was used up is used again"
        self.spent = True

    def select(self, rows: Tensor) -> Told:
        self.take()
        return Told(self.sources.select(rows), self.memory[rows])


class Toy(TranslationModel):
    """h_t = tanh(R h_(t-1) + E y_t + mean source); logits = O h_t; `ends` raises the end's."""

    def __init__(
        self, vocabulary: int = 8, width: int = 6, seed: int = 0, ends: float = 0.0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def random_tensor(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        self.padding = PAD
        self.meanings = random_tensor(8, width)
        self.words, self.recurrence = (
            random_tensor(vocabulary, width),
            random_tensor(width, width) * 0.5,
        )
        self.output, self.shift = random_tensor(width, vocabulary), torch.zeros(vocabulary)
        self.shift[EOS] = ends
        self.rows_read: list[int] = []

    def encode(self, source: Tensor, lengths: Tensor) -> Sources:
        readable = (torch.arange(source.shape[1]) < lengths[:, None]).unsqueeze(-1)
        return Sources((self.meanings[source] * readable).sum(1) / lengths[:, None])

    def begin(self, source: Tensor, lengths: Tensor) -> Told:
        encoded = self.encode(source, lengths)
        return Told(encoded, torch.zeros_like(encoded.meaning))

    def advance(self, words: Tensor, state: Told) -> tuple[Tensor, Told]:
        state.take()
        self.rows_read.append(len(words))
        memory = self._next(words, state.memory, state.sources.meaning)
        return memory, Told(state.sources, memory)

    def hidden(
        self, source: Tensor, lengths: Tensor, target: Tensor, watched: Watched | None = None
    ) -> Tensor:
        meaning = self.encode(source, lengths).meaning
        memory, all_of_them = torch.zeros_like(meaning), []
        for words in target.unbind(1):
            memory = self._next(words, memory, meaning)
            all_of_them.append(memory)
        states = torch.stack(all_of_them, 1)
        if watched is not None and watched.wants("decoder.0.cross"):
            scores = states @ self.meanings[source].transpose(1, 2)
            padded = torch.arange(source.shape[1]) >= lengths[:, None]
            weights = scores.masked_fill(padded.unsqueeze(1), float("-inf")).softmax(-1)
            watched.looks["decoder.0.cross"] = StoredLook(weights.unsqueeze(1))
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.output + self.shift

    def _next(self, words: Tensor, memory: Tensor, meaning: Tensor) -> Tensor:
        return torch.tanh(memory @ self.recurrence + self.words[words] + meaning)


class Tied(Toy):
    """Every word equally probable, always."""

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.new_zeros(*hidden.shape[:-1], len(self.words))


Found = list[list[Hypothesis]]


def beam(model: Any, *sources: Tensor, size: int, compiled: bool = True, **settings: Any) -> Found:
    engine, limits, search = _prepared(model, sources[0], {**settings, "beam": size}, compiled)
    hypotheses = beams.beam(engine, *sources, limits, search)
    return [group[: search.nbest] for group in hypotheses]


def greedy(model: Any, *sources: Tensor, compiled: bool = True, **settings: Any) -> Found:
    engine, limits, search = _prepared(model, sources[0], settings, compiled)
    return searches.greedy(engine, *sources, limits, search)


def sample(
    model: Any,
    *sources: Tensor,
    draws: int = 1,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> Found:
    settings |= {"sampling": True, "nbest": draws}
    engine, limits, search = _prepared(model, sources[0], settings, True)
    return searches.sample(engine, *sources, limits, search, generator)


def _prepared(
    model: Any, source: Tensor, settings: dict[str, Any], compiled: bool
) -> tuple[SearchEngine, Limits, Search]:
    """An engine, limits with one `max_length` for all sentences or one for each, and the other settings."""
    engine = model if isinstance(model, SearchEngine) else SearchEngine(model, loops=compiled)
    prefix, longest = settings.pop("prefix", None), torch.as_tensor(settings.pop("max_length"))
    search = Search(**settings)
    return engine, Limits.of(longest.expand(len(source)), search, prefix), search


def some_sources(sentences: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 6, (sentences,), generator=generator)
    source = torch.randint(4, 8, (sentences, 5), generator=generator)
    source[torch.arange(5) >= lengths[:, None]] = PAD
    return source, lengths


def every_translation(
    model: Toy, source: Tensor, lengths: Tensor, longest: int, exponent: float = 1.0
) -> list[Hypothesis]:
    """All translations of one sentence, the best first, without a search and in float64."""
    hypotheses = [
        hypothesis
        for _, alike in itertools.groupby(_strings(model, longest), len)
        for hypothesis in all_of_a_length(model, source, lengths, list(alike), exponent)
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def all_of_a_length(
    model: Toy, source: Tensor, lengths: Tensor, strings: list[list[int]], exponent: float
) -> list[Hypothesis]:
    """Translations of one sentence, each in a row of its own, which no other row changes."""
    words = torch.tensor([[BOS, *tokens, EOS] for tokens in strings])
    rows = source.expand(len(strings), -1), lengths.expand(len(strings))
    log_p = model.logits(model.hidden(*rows, words[:, :-1])).double().log_softmax(-1)
    log_probabilities = log_p.gather(-1, words[:, 1:, None])[..., 0]
    return [
        Hypothesis(tokens, sum(row) / ((5 + len(row)) / 6) ** exponent, sum(row), row)
        for tokens, row in zip(strings, log_probabilities.tolist(), strict=True)
    ]


def one_by_one(
    model: Toy, source: Tensor, lengths: Tensor, tokens: list[int], exponent: float
) -> Hypothesis:
    """One translation, worked out alone."""
    (hypothesis,) = all_of_a_length(model, source, lengths, [tokens], exponent)
    return hypothesis


def _strings(model: Toy, longest: int) -> Iterator[list[int]]:
    words = [word for word in range(len(model.words)) if word not in (PAD, BOS, EOS)]
    for length in range(longest + 1):
        yield from (list(string) for string in itertools.product(words, repeat=length))
