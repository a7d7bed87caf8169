"""A corpus as arrays: the best segmentations, and draws with the right odds."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.subwords import Ragged, Segmenter
from regard.translation.text.tokenizer import Tokenizer


class Corpus(NamedTuple):
    """Lines and the segmenter that knows their words."""

    segmenter: Segmenter
    words: Ragged

    def best(self) -> Ragged:
        return self.segmenter.best(self.words)

    def draw(self, random: np.random.Generator, longest: int | None = None) -> Ragged:
        return self.segmenter.draw(self.words, random, longest)


def corpus(tokenizer: Tokenizer, lines: list[str], alpha: float, *tags) -> Corpus:
    segmenter = Segmenter(tokenizer, alpha)
    return Corpus(segmenter, segmenter.words(lines, *tags))


rows_of_ids = st.lists(st.lists(st.integers(0, 1000), max_size=5), max_size=8)


@given(rows_of_ids)
def test_ragged_rows_come_back(rows):
    ragged = Ragged.of(rows)
    assert len(ragged) == len(rows)
    assert [list(ragged[i]) for i in range(len(rows))] == rows
    assert list(ragged.lengths) == [len(row) for row in rows]


@given(rows_of_ids.filter(len), st.data())
def test_rows_are_taken_in_the_order_asked_for_and_again(rows, data):
    expected_case = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
    selected = Ragged.of(rows).take(np.array(expected_case, dtype=np.int64))
    assert [list(selected[i]) for i in range(len(expected_case))] == [
        rows[i] for i in expected_case
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_best_of_the_segmenter_is_the_tokenizers(unigram, lines, alpha):
    odd = [*lines[:100], "日本 ñandú 👩\u200d👧", "a" * 100, "<s> </s>"]
    best = corpus(unigram, odd, alpha).best()
    assert [list(best[i]) for i in range(len(odd))] == [unigram.encode(line) for line in odd]


def test_bpe_without_sampling(tokenizer, lines):
    best = corpus(tokenizer, lines[:50], 0.0).best()
    assert [list(best[i]) for i in range(50)] == [tokenizer.encode(line) for line in lines[:50]]


def test_drawn_segmentations_spell_the_same_text_and_differ(unigram, lines):
    segmenter, random = corpus(unigram, lines, 0.3), np.random.default_rng(1)
    first_draw, second = segmenter.draw(random), segmenter.draw(random)
    for draw in (first_draw, second):
        assert [unigram.decode(draw[i]) for i in range(len(lines))] == lines
    assert first_draw.items.tolist() != second.items.tolist()


def test_draws_stay_within_the_length_that_the_best_keep(unigram, lines):
    segmenter = corpus(unigram, lines, 0.01)
    best, longest = segmenter.best(), 12
    free = segmenter.draw(np.random.default_rng(1))
    held_case = segmenter.draw(np.random.default_rng(1), longest)
    assert (free.lengths > longest).any()
    for row in range(len(lines)):
        expected = free if free.lengths[row] <= longest else best
        assert held_case[row].tolist() == expected[row].tolist()


def test_the_same_seed_draws_the_same(unigram, lines):
    def pieces_of(seed: int) -> list[int]:
        return corpus(unigram, lines, 0.3).draw(np.random.default_rng(seed)).items.tolist()

    assert pieces_of(4) == pieces_of(4)
    assert pieces_of(4) != pieces_of(5)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_draws_follow_the_probabilities_to_the_power_of_alpha(unigram, alpha):
    word, count = "verkatzen", 20_000
    case = corpus(unigram, [word] * count, alpha).draw(np.random.default_rng(7))
    counts = Counter(tuple(case[i].tolist()) for i in range(count))
    segmentations = unigram.segmentations(word, 16)
    odds = {tuple(ids): math.exp(alpha * score) for ids, score in segmentations}
    assert len(odds) > 3
    assert counts.keys() <= odds.keys()
    total = sum(odds.values())
    for ids, odd in odds.items():
        p = odd / total
        # Five standard deviations, and one for what is too rare for them.
        assert abs(counts[ids] - count * p) <= 5 * math.sqrt(count * p * (1 - p)) + 1, ids


def test_words_that_come_later_change_no_draw_of_the_others(unigram, lines):
    known_words, more = corpus(unigram, lines[:100], 0.3), corpus(unigram, lines[50:], 0.3)
    words = more.segmenter.words(lines[:100])
    for at in (1, 2):
        expected = known_words.draw(np.random.default_rng(at))
        case = more.segmenter.draw(words, np.random.default_rng(at))
        assert case.items.tolist() == expected.items.tolist()


def test_words_that_are_not_kept_are_learnt_anew(unigram, lines):
    segmenter = Segmenter(unigram, 0.3)
    first_words = segmenter.words(lines[:50])
    count, best = len(segmenter), segmenter.best(first_words).items.tolist()
    for more in (lines[50:], lines[100:200]):
        segmenter.keep(count)
        assert len(segmenter) == count
        segmented = segmenter.best(segmenter.words(more))
        assert [list(segmented[i]) for i in range(len(more))] == list(map(unigram.encode, more))
        assert segmenter.best(first_words).items.tolist() == best


def test_no_lines_are_no_rows(unigram):
    empty = corpus(unigram, [], 0.5)
    assert len(empty.best()) == len(empty.draw(np.random.default_rng(0))) == 0


def test_tags_come_before_their_line_and_are_never_cut(lines):
    tokenizer = Tokenizer.train(lines, vocabulary_size=420, tags=["2en", "2fr", "bt"])
    message = [("2fr", "bt"), ("2en",), ()] * 20
    segmenter = corpus(tokenizer, lines[:60], 0.5, message)
    case = segmenter.draw(np.random.default_rng(3))
    for row, (line, tags) in enumerate(zip(lines, message, strict=False)):
        expected = tokenizer.tagged(tags).encode(line)
        assert segmenter.best()[row].tolist() == expected
        assert case[row].tolist()[: len(tags)] == expected[: len(tags)]
        assert tokenizer.decode(case[row].tolist()) == line
