"""Generated corpora: the same from the same seed, never the same string in two splits."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigurationError
from regard.translation.text.generated import SPLITS, TASKS, dates, generate
from regard.translation.text.normalisation import normalise

tasks = pytest.mark.parametrize("task", sorted(TASKS))


@tasks
def test_the_same_seed_gives_the_same_pairs_and_another_seed_others(task):
    assert generate(task, seed=3, count=50) == generate(task, seed=3, count=50)
    assert generate(task, seed=3, count=50) != generate(task, seed=4, count=50)


def test_the_pairs_do_not_depend_on_the_process():
    """String hashes differ between processes; a corpus must not."""
    program = (
        "from regard.translation.text.generated import generate\n"
        "for task in ('dates', 'reverse'):\n"
        "    print([tuple(pair) for pair in generate(task, seed=7, count=5, split='test')])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-X", "utf8", "-c", program],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    local_texts = [
        str([tuple(pair) for pair in generate(task, seed=7, count=5, split="test")])
        for task in ("dates", "reverse")
    ]
    assert printed == {"\n".join(local_texts) + "\n"}


@tasks
def test_a_larger_count_only_appends(task):
    assert generate(task, seed=5, count=40)[:15] == generate(task, seed=5, count=15)


@tasks
@given(seed=st.integers(0, 1000), second_seed=st.integers(0, 1000))
def test_no_source_is_in_two_splits_whatever_the_seeds(task, seed, second_seed):
    train = {pair.source.casefold() for pair in generate(task, seed, 300)}
    valid = {pair.source.casefold() for pair in generate(task, second_seed, 40, "valid")}
    test = {pair.source.casefold() for pair in generate(task, second_seed, 40, "test")}
    assert not train & valid
    assert not train & test
    assert not valid & test


@tasks
@pytest.mark.parametrize("split", sorted(SPLITS))
def test_sources_are_distinct_and_already_normalised(task, split):
    pairs = generate(task, seed=2, count=500, split=split)
    assert len({pair.source for pair in pairs}) == 500
    for pair in pairs:
        assert normalise(pair.source) == pair.source
        assert normalise(pair.target) == pair.target


def test_reversal_is_the_same_letters_backwards_at_every_length():
    pairs = generate("reverse", seed=1, count=400)
    for pair in pairs:
        assert pair.target.split() == pair.source.split()[::-1]
    assert {len(pair.source.split()) for pair in pairs} == set(range(3, 13))


def test_asking_for_more_than_a_task_holds_ends_with_a_message(monkeypatch):
    dates_drawn = [dates.draw(random.Random(seed)) for seed in range(30)]
    monkeypatch.setitem(TASKS, "dates", lambda dice: dice.choice(dates_drawn))
    with pytest.raises(ConfigurationError, match=r"too few different train pairs: .* 31 asked"):
        generate("dates", seed=1, count=31)
