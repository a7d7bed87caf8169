"""A small corpus with repeated words, and tokenizers learnt from it."""

from __future__ import annotations

import random

import pytest

from regard.translation.text.tokenizer import Tokenizer


def corpus() -> list[str]:
    dice = random.Random(5)
    syllables = "re un ver haus katz schön geh seh niño garde en e st chen ung s".split()
    words = ["".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(1500)]
    return [" ".join(dice.choices(words, k=dice.randint(1, 7))) for _ in range(400)]


@pytest.fixture(scope="session")
def lines() -> list[str]:
    return corpus()


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def tokenizer(request, lines) -> Tokenizer:
    return Tokenizer.train(lines, vocabulary_size=330, kind=request.param)


@pytest.fixture(scope="session")
def unigram(lines) -> Tokenizer:
    return Tokenizer.train(lines, vocabulary_size=420)
