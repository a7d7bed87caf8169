"""Paired bootstrap: sacreBLEU's own numbers, repeatable, and loud where it cannot be used."""

from __future__ import annotations

import os

import pytest

from regard.errors import ConfigurationError, DataError
from regard.translation.evaluation import significance
from regard.translation.evaluation.scores import measure
from regard.translation.evaluation.significance import compare

COLOURS, SIZES = "red blue".split(), "big small tiny".split()
GIVEN = [f"the {a} cat sees a {b} dog near the old house" for a in COLOURS for b in SIZES]
WORSE = [line.replace("sees a", "is") if place % 2 else "no" for place, line in enumerate(GIVEN)]
LIKE = [line.replace("old", "new") if place == 0 else line for place, line in enumerate(GIVEN)]


def test_a_large_difference_is_significant_and_a_small_one_is_not():
    large = compare(GIVEN, WORSE, GIVEN, measures=["bleu"], resamples=200).differences["bleu"]
    small = compare(GIVEN, LIKE, GIVEN, measures=["bleu"], resamples=200).differences["bleu"]
    assert large.score == pytest.approx(100)
    assert large.baseline < 60 < small.baseline < 100
    assert large.p_value <= 0.05 < small.p_value
    assert small.interval == 0 < small.baseline_interval


def test_the_numbers_are_sacrebleu_s_and_its_signature_says_how(monkeypatch):
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    monkeypatch.setenv("SACREBLEU_SEED", "7")
    test = PairedTest([("b", WORSE), ("s", LIKE)], {"BLEU": BLEU()}, [GIVEN], "bs", 50)
    theirs = test()[1]["BLEU"]
    ours = compare(LIKE, WORSE, GIVEN, measures=["bleu"], resamples=50, seed=7)
    difference = ours.differences["bleu"]
    assert (difference.baseline, difference.score) == (theirs[0].score, theirs[1].score)
    assert (difference.mean, difference.interval, difference.p_value) == (
        pytest.approx(theirs[1].mean), pytest.approx(theirs[1].ci), theirs[1].p_value
    )  # fmt: skip
    assert "bs:50|seed:7|" in ours.signatures["bleu"]
    assert os.environ["SACREBLEU_SEED"] == "7"


def test_the_seed_decides_and_leaves_no_trace(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    first_run, repeated_run, other_seed = (
        compare(LIKE, WORSE, GIVEN, measures=["chrf"], resamples=50, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first_run == repeated_run
    assert first_run.differences["chrf"].mean != other_seed.differences["chrf"].mean
    assert "SACREBLEU_SEED" not in os.environ


def test_all_measures_are_compared():
    comparison = compare(LIKE, WORSE, GIVEN, resamples=5)
    assert list(comparison.differences) == list(comparison.signatures) == ["bleu", "chrf", "ter"]


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "message"),
    [
        ((["a"], ["a", "b"], ["a"]), {}, DataError, "1 translations, 2 of the baseline"),
        (([], [], []), {}, DataError, "nothing to compare"),
        ((["a"], ["a"], ["a"]), {"measures": ["exact"]}, ConfigurationError, "no paired measure"),
        ((["a"], ["a"], ["a"]), {"seed": 0}, ConfigurationError, "seed 0"),
        ((["a"], ["a"], ["a"]), {"resamples": 0}, ConfigurationError, "0 resamples"),
    ],
)
def test_mistakes_are_told(arguments: tuple, settings: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        compare(*arguments, **settings)


def test_what_would_take_all_the_memory_is_refused():
    with pytest.raises(ConfigurationError, match="use at most 298"):
        significance.check(1000, 1, 100_000)


def test_several_references_and_a_tokenizer_are_those_of_the_scores():
    ours, theirs, first_reference, two = ["我喜欢狗。"], ["我喜欢。"], ["我喜欢猫。"], ["我爱狗。"]
    comparison = compare(
        ours, theirs, first_reference, two, measures=["bleu"], resamples=5, tokenizer="zh"
    )
    score = measure(ours, first_reference, two, measures=["bleu"], tokenizer="zh").bleu
    assert comparison.differences["bleu"].score == pytest.approx(score)
    assert "nrefs:2|" in comparison.signatures["bleu"]
    assert "|tok:zh|" in comparison.signatures["bleu"]
    with pytest.raises(DataError, match="1 translations, 1 of the baseline and 2 references"):
        compare(ours, theirs, first_reference, two * 2)
