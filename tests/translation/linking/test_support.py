"""Scores of pairs by their links: the strength that a plain loop computes, and low ones for what is no translation."""

from __future__ import annotations

import numpy as np
from tests.translation.linking.test_learning import PAIRS

from regard.translation.linking import learning
from regard.translation.linking.learning import learn
from regard.translation.linking.support import DOUBTFUL, support


def test_a_pair_of_other_sentences_has_the_lowest_score(monkeypatch):
    monkeypatch.setattr(learning, "MOST_CELLS", 100)
    wrong = (["la", "mesa", "negra"], ["a", "green", "street"])
    pairs = [*PAIRS * 2, wrong, ([], ["street"]), (["a"] * 60, ["b"] * 50)]
    scores = support(pairs, learn(pairs)[0])
    assert scores[-2:].tolist() == [0, 0]
    assert scores[-3] < 0.5 * scores[:-3].min()
    assert scores[:-3].min() > DOUBTFUL


def test_strength_is_that_of_the_other_pairs():
    pairs = [*PAIRS, (["la", "casa"], ["the", "house"])]
    posteriors, _ = learn(pairs)
    total = 0.0
    source, target = pairs[-1]
    means = [sum(posteriors.matrices(number)) / 2 for number in range(len(pairs))]

    def strength(s: str, t: str) -> float:
        links = words = 0.0
        for (ours, theirs), mean in zip(pairs[:-1], means, strict=False):
            words += ours.count(s) + theirs.count(t)
            links += sum(
                mean[j, i]
                for j, y in enumerate(theirs)
                for i, x in enumerate(ours)
                if (x, y) == (s, t)
            )
        return 2 * links / (words + 1)

    total += sum(max(strength(s, t) for t in target) for s in source)
    total += sum(max(strength(s, t) for s in source) for t in target)
    np.testing.assert_allclose(support(pairs, posteriors)[-1], total / 4, rtol=1e-4)
