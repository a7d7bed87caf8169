"""Parts of a corpus: random, repeatable, and without a sentence in common."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.translation.text.checking.repetitions import folded
from regard.translation.text.corpora import Pair
from regard.translation.text.splitting import families, split

texts = st.text("abAB.! ", min_size=1, max_size=3)


def corpus(count: int = 600) -> list[Pair]:
    dice = random.Random(2)
    return [
        Pair(f"s{dice.randrange(count)}", f"t{dice.randrange(count * 3)}") for _ in range(count)
    ]


def keys(pairs: list[Pair], side: int) -> set[str]:
    return {folded(pair[side]) or pair[side] for pair in pairs}


def test_parts_have_no_sentence_in_common_and_leave_out_repetitions_only():
    pairs = corpus()
    pairs += [pairs[3], Pair(pairs[5].source.upper() + " !", "odd"), pairs[3]]
    splits = split(pairs, valid=40, test=50, seed=3)
    assert (len(splits.valid), len(splits.test)) == (40, 50)
    all_splits = (splits.train, splits.valid, splits.test)
    assert sorted(pair for part in all_splits for pair in part) == sorted(set(pairs))
    assert splits.repeated == len(pairs) - len(set(pairs)) >= 2
    for side in (0, 1):
        ours, valid, test = (keys(part, side) for part in all_splits)
        assert not ours & (valid | test)
        assert not valid & test


@pytest.mark.parametrize(("pairs", "held_out"), [(3, 1), (2_100, 210), (12_000, 1_000)])
def test_by_default_a_small_corpus_holds_out_a_tenth_and_a_tenth(pairs, held_out):
    splits = split([Pair(f"s{i}", f"t{i}") for i in range(pairs)])
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [
        pairs - 2 * held_out,
        held_out,
        held_out,
    ]


@pytest.mark.parametrize(
    ("count", "size", "held_out"),
    [(1_000, 2, 100), (12_005, 7, 994), (1_000, 7, 98), (30, 2, 0), (6_000, 12, 0)],
)
def test_by_default_what_whole_families_fill_is_held_out(count, size, held_out):
    """Families of one size: each sentence has so many translations."""
    pairs = [Pair(f"s{i // size}", f"t{i}") for i in range(count)]
    if not held_out:
        with pytest.raises(DataError, match=r"0 of \d+ pairs can be held out for test"):
            split(pairs)
        return
    splits = split(pairs)
    assert len(splits.valid) == len(splits.test) == held_out
    assert not keys(splits.train, 0) & keys(splits.valid, 0)
    assert [name in note for name, note in zip(("valid", "test"), splits.notes, strict=True)]
    assert all(f"{held_out} pairs" in note for note in splits.notes)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=40),
    st.integers(1, 60),
    st.integers(0, 2**30),
)
def test_the_advice_on_a_size_that_cannot_be_held_out_works(members, expected, seed):
    """Whatever size the message names is one that can be held out, or nothing is named."""
    pairs = [Pair(f"s{i}", f"t{i}.{j}") for i, count in enumerate(members) for j in range(count)]
    try:
        split(pairs, valid=0, test=expected, seed=seed)
    except DataError as fault:
        if named := re.search(r"hold out (\d+),", str(fault)):
            splits = split(pairs, valid=0, test=int(named[1]), seed=seed)
            assert len(splits.test) == int(named[1])


def test_families_too_large_for_a_small_set_are_the_reason_to_hold_out_more():
    pairs = [Pair(f"s{i // 2}", f"t{i}") for i in range(1_000)]
    with pytest.raises(DataError, match="hold out 20,"):
        split(pairs, valid=0, test=15)
    assert len(split(pairs, valid=0, test=20).test) == 20
    with pytest.raises(DataError, match=r"20 of 21 pairs .*: hold out 20, which"):
        split(pairs, valid=0, test=21)


def test_the_seed_decides_and_the_order_of_the_corpus_stays():
    first_splits, repeated_splits, other_splits = (
        split(corpus(), valid=30, test=30, seed=seed) for seed in (1, 1, 2)
    )
    assert first_splits == repeated_splits
    assert first_splits.test != other_splits.test
    place = {pair: number for number, pair in reversed(list(enumerate(corpus())))}
    for pairs in (first_splits.train, first_splits.valid, first_splits.test):
        numbers = [place[pair] for pair in pairs]
        assert numbers == sorted(numbers)


@given(st.lists(st.tuples(texts, texts).map(lambda pair: Pair(*pair)), max_size=12))
def test_families_are_the_connected_components(pairs):
    """Against components grown naively until nothing changes."""
    actual = list(range(len(pairs)))
    for _ in pairs:
        for i, pair in enumerate(pairs):
            for j, two in enumerate(pairs):
                same = [
                    (folded(a) or a) == (folded(b) or b)
                    for a, b in zip(pair[:2], two[:2], strict=True)
                ]
                if any(same):
                    actual[i] = actual[j] = min(actual[i], actual[j])
    numbers: dict[int, int] = {}
    expected = [numbers.setdefault(each, len(numbers)) for each in actual]
    assert families(pairs).tolist() == expected


def test_a_large_family_is_learnt_from_and_not_measured_with():
    pairs = [Pair("Hi", f"t{i}") for i in range(50)] + [Pair(f"s{i}", f"u{i}") for i in range(50)]
    splits = split(pairs, valid=20, test=20)
    assert (splits.families, splits.largest) == (51, 50)
    assert keys(splits.valid + splits.test, 0).isdisjoint({"hi"})
    with pytest.raises(DataError, match="29 of 30 pairs can be held out for valid"):
        split(pairs[:79], valid=30, test=0)
    with pytest.raises(DataError, match="25 to validate and 25 to test with leave nothing of 50"):
        split(pairs[50:], valid=25, test=25)
