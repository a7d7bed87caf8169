"""Spans of a source sentence, carried to its translation by word links."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import pytest
import torch

from regard import align
from regard.errors import ConfigurationError
from regard.translation.aligning.aligner import Aligned

SOURCE = "ayer la casa verde no ardió".split()
TARGET = "the green house did not burn yesterday".split()
LINKS = {(0, 6), (1, 0), (2, 2), (3, 1), (4, 4), (5, 5)}


def aligned(source, target, links):
    return Aligned(source, target, links, torch.zeros(len(target), len(source)))


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ((0, 1), "yesterday"),
        ((2, 3), "house"),
        ((2, 4), "green house"),
        ((1, 4), "the green house"),
        ((4, 6), "not burn"),
        ((2, 6), "green house did not burn"),  # with the word inside that has no link
        ((0, 6), "the green house did not burn yesterday"),
    ],
)
def test_a_span_is_where_its_words_are(span, words):
    places = aligned(SOURCE, TARGET, LINKS).project(*span)
    assert " ".join(TARGET[place] for place in places) == words


def test_a_span_without_links_is_nowhere():
    assert not aligned(SOURCE, TARGET, {(0, 6)}).project(2, 4)
    assert not aligned(SOURCE, [], set()).project(0, 6)


@pytest.mark.parametrize("span", [(2, 2), (3, 2), (-1, 2), (5, 7), (7, 8)])
def test_words_that_the_sentence_lacks_are_refused(span):
    with pytest.raises(ConfigurationError, match=r"within the 6 source words"):
        aligned(SOURCE, TARGET, LINKS).project(*span)


def test_no_other_stretch_has_more_of_the_links():
    drawn = random.Random(0)
    for _ in range(300):
        words, count = drawn.randint(1, 5), drawn.randint(1, 6)
        cells = [(s, t) for s in range(words) for t in range(count)]
        links = set(drawn.sample(cells, drawn.randint(0, len(cells) // 2)))
        start, stop = sorted(drawn.sample(range(words + 1), 2))
        pair = aligned(["a"] * words, ["b"] * count, links)

        def gain(places, links=links, span=range(start, stop)):
            """The share of links into the span less the others', by word; a word without links costs a tenth."""
            total = Fraction(0)
            for place in places:
                linked = [s for s, t in links if t == place]
                inside = sum(s in span for s in linked)
                share = Fraction(2 * inside - len(linked), len(linked)) if linked else None
                total += Fraction(-1, 10) if share is None else share
            return total

        best = max((gain(range(*edges)) for edges in combinations(range(count + 1), 2)), default=0)
        assert gain(pair.project(start, stop)) == max(best, 0)


def test_learnt_links_carry_a_name():
    names = ["Ana", "Luis", "Eva", "Juan", "Rosa", "Pablo"]
    pairs = [(f"la casa de {name} es roja", f"{name} 's house is red") for name in names]
    pair = align([(s.split(), t.split()) for s, t in pairs], adapt=True)[2]
    assert [pair.target[place] for place in pair.project(3, 4)] == ["Eva"]
