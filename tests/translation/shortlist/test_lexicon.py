"""IBM Model 1 against its equations, word by word, and on a language whose dictionary is known."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.shortlist import lexicon

SENTENCE = st.lists(st.integers(0, 5), min_size=1, max_size=4)


def by_the_book(sentences, rounds):
    """Brown et al. 1993, Model 1, one word at a time."""
    likely = {(s, t): 1.0 for source, target in sentences for s in source for t in target}
    for _ in range(rounds):
        got, of_source = defaultdict(float), defaultdict(float)
        for source, target in sentences:
            for t in target:
                total = sum(likely[s, t] for s in source)
                for s in source:
                    got[s, t] += likely[s, t] / total
                    of_source[s] += likely[s, t] / total
        likely = {(s, t): count / of_source[s] for (s, t), count in got.items()}
    return likely


@given(
    sentences=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=8),
    rounds=st.integers(1, 4),
    at_once=st.sampled_from([1, 7, 1000]),
)
def test_it_is_the_equation_in_pieces_of_any_size(sentences, rounds, at_once):
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(lexicon, "_AT_ONCE", at_once)
        found = lexicon.learn(sentences, 9, range(rounds))
    expected = by_the_book(sentences, rounds)
    keys = list(zip(found.sources.tolist(), found.targets.tolist(), strict=True))
    assert keys == sorted(expected)
    assert found.probabilities == pytest.approx([expected[key] for key in keys])


def test_it_finds_the_dictionary_of_a_language_of_one_word_for_one():
    dice = random.Random(4)
    words = list(range(20))
    translations = dice.sample(range(30), 20)
    sentences = []
    for _ in range(300):
        source = dice.sample(words, 5)
        target = [translations[word] for word in source]
        dice.shuffle(target)
        sentences.append((source, target))
    sources, targets = lexicon.best(lexicon.learn(sentences, 30), 1)
    assert sources.tolist() == words
    assert targets.tolist() == translations


def test_the_best_come_first_and_are_no_more_than_asked_for():
    found = lexicon.Lexicon(
        np.array([1, 1, 1, 3]), np.array([0, 4, 8, 2]), np.array([0.2, 0.7, 0.1, 1.0])
    )
    sources, targets = lexicon.best(found, 2)
    assert list(zip(sources, targets, strict=True)) == [(1, 4), (1, 0), (3, 2)]
