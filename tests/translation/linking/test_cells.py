"""The pairs of types of all cells, against a dictionary; and Dice's coefficient against sets of runs."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.linking.cells import Side, TypePairs
from regard.translation.linking.similarity import similarities

SENTENCES = st.lists(st.lists(st.sampled_from("a B b cc çc dddd".split()), max_size=5), max_size=5)


@given(SENTENCES, SENTENCES)
def test_each_cell_has_the_pair_of_its_forms(source_words, target_words):
    count = min(len(source_words), len(target_words))
    source, target = Side.of(source_words[:count], 3), Side.of(target_words[:count], 3)
    pairs = TypePairs.of(source, target)
    expected = [
        (s.lower()[:3], t.lower()[:3])
        for ours, theirs in zip(source_words, target_words, strict=False)
        for t in theirs
        for s in ours
    ]
    named = [
        (source.forms[s], target.forms[t])
        for s, t in zip(pairs.source[pairs.cells], pairs.target[pairs.cells], strict=True)
    ]
    assert named == expected
    assert len(pairs.source) == len(set(expected))


@given(st.text("abcé", max_size=6), st.text("abcé", max_size=6))
def test_similarity_is_dices_coefficient_of_runs_without_accents(item, second_word):
    def runs(word: str) -> Counter[str]:
        text = f"^{word.replace('é', 'e')}$"
        return Counter(text[i : i + n] for n in (2, 3) for i in range(len(text) - n + 1))

    ours, theirs = runs(item), runs(second_word)
    expected = 2 * (ours & theirs).total() / (ours.total() + theirs.total())
    pair = np.zeros(1, np.int32)
    np.testing.assert_allclose(
        similarities([item], [second_word], (pair, pair)), expected, rtol=1e-6
    )
