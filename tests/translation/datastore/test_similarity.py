"""Which texts share the most and rarest words: against the equation, word by word."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from regard.translation.datastore.similarity import WordIndex


def _score(query: str, text: str, texts: list[str]) -> float:
    """BM25 with k = 1.2 and b = .3, where a text is as long as it has different words."""
    counts, size = Counter(text.lower().split()), sum(len(set(each.split())) for each in texts)
    length = len(counts) * len(texts) / size
    score = 0.0
    for word, times in Counter(query.lower().split()).items():
        frequency = counts[word]
        damped = frequency * 2.2 / (frequency + 1.2 * (0.7 + 0.3 * length))
        score += times * _rarity(word, texts) * damped
    return score


def _rarity(word: str, texts: list[str]) -> float:
    having = sum(word in text.split() for text in texts)
    return math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))


def test_the_best_are_those_of_the_equation():
    draw = random.Random(1)
    texts = [" ".join(draw.choices("abcdefghij", k=draw.randint(1, 9))) for _ in range(80)]
    queries = ["A b b", "c", "j i h g", "a z"]
    numbers, shares = WordIndex(texts).most_similar(queries, 5)
    for query, row, row_shares in zip(queries, numbers.tolist(), shares.tolist(), strict=True):
        scores = [_score(query, text, texts) for text in texts]
        best = sorted(scores, reverse=True)[:5]
        assert [scores[number] for number in row] == pytest.approx(best, rel=1e-5)
        known = [word for word in query.lower().split() if word in "abcdefghij"]
        most = sum(_rarity(word, texts) for word in known)
        assert row_shares == pytest.approx([score / most for score in best], rel=1e-5)


def test_of_equals_the_first_and_nothing_where_no_word_is_shared():
    index = WordIndex(["uno dos", "tres", "uno dos"])
    numbers, shares = index.most_similar(["UNO", "cuatro", ""], 3)
    assert numbers.tolist() == [[0, 2, -1], [-1] * 3, [-1] * 3]
    assert shares[0, 2] == 0
    assert not shares[1:].any()


def test_no_texts():
    assert WordIndex([]).most_similar(["uno"], 2)[0].tolist() == [[-1, -1]]
