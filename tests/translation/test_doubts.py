"""Doubts: each reason is found where it holds, and nowhere in text like that of the training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import CorruptedError
from regard.translation.calibration import confidence_limit
from regard.translation.doubts import Doubts, wordless
from regard.translation.opening import open_runs
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator


@pytest.fixture(scope="module")
def spanish() -> Translator:
    return Translator.open("es-en")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hace frío.", []),
        ("HACE FRÍO.", []),
        ("Mi hermano tiene una casa grande y un gato negro.", []),
        ("", []),
        (" ", []),
        ("🙂", []),
        (".", ["no words"]),
        ("Привет, как дела?", ["unknown", "unknown script"]),
        ("How are you today, my friend?", ["other language"]),
        ("Guten Morgen, wie geht es Ihnen heute?", ["other language"]),
    ],
)
def test_reasons_to_doubt(spanish, text, expected):
    (translation,) = spanish.translate([text])
    assert set(expected) <= set(translation.doubts)
    assert bool(translation.doubts) == bool(expected)


def test_words_that_were_asked_for_are_not_doubted(spanish):
    (translation,) = spanish.translate(["Hace frío."], prefix="The weather")
    assert translation.doubts == []
    low = translation.log_probability / len(translation.target_pieces)
    assert list(spanish.doubts.reasons("Hace frío.", translation.text, low)) == ["low confidence"]


def test_a_line_has_the_doubts_of_its_sentences(spanish):
    (line,) = spanish.translate(["Hace frío. How are you today, my friend? Me gusta."])
    assert [bool(one.doubts) for one in line.sentences] == [False, True, False]
    assert line.doubts == line.sentences[1].doubts


def test_a_loop_is_searched_again(spanish):
    text = "Привет, как дела?"
    greedy = spanish.search.changed(beam=1)
    (translation,) = spanish.translate([text], search=greedy)
    (once,) = spanish.translate([text], search=greedy.changed(beam=2, no_repeat_ngram=4))
    assert translation.repeats
    assert "repeats" in translation.doubts
    assert translation.text == once.text
    (first_translation,) = spanish.translate([text], search=greedy.changed(search_again=False))
    assert first_translation.repeats
    assert first_translation.text != translation.text
    pieces = translation.target_pieces
    fours = [tuple(pieces[i : i + 4]) for i in range(len(pieces) - 3)]
    assert len(set(fours)) == len(fours)


def test_a_model_without_the_file_says_nothing_of_its_text(spanish, monkeypatch):
    monkeypatch.setattr(spanish, "doubts", None)
    english, mark, emoji = spanish.translate(["How are you today, my friend?", ".", "🙂"])
    assert english.doubts == ["unseen"]
    assert mark.doubts == ["no words"]
    assert (emoji.text, emoji.doubts) == ("🙂", [])


def test_length_is_doubted_by_that_of_the_training_pairs():
    draw = np.random.default_rng(1)
    sizes = draw.integers(10, 100, 2000)
    pairs = [Pair("a " * n, "b " * int(2 * n + draw.normal() * n**0.5)) for n in sizes]
    doubts = Doubts.learn(pairs, pairs)
    assert doubts.growth == pytest.approx(2, abs=0.05)
    assert list(doubts.reasons("a " * 50, "b " * 100, 0.0)) == []
    for count in (40, 160):
        assert list(doubts.reasons("a " * 50, "b " * count, 0.0)) == ["odd length"]


def test_too_little_text_tells_nothing():
    pairs = [Pair("uno", "one")] * 50
    doubts = Doubts.learn(pairs, pairs)
    assert doubts == Doubts()
    assert list(doubts.reasons("Привет", "one " * 100, -100.0)) == []


def test_the_limit_of_confidence_divides_worse_from_better():
    scores = list(range(1000))
    confidences = [-1.0 / (1 + score) for score in scores]
    assert confidence_limit(confidences, scores) == pytest.approx(confidences[99], abs=1e-4)
    assert confidence_limit(confidences[:99], scores[:99]) is None
    # The least confident are the best: there is no limit.
    assert confidence_limit(confidences, scores[::-1]) is None


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(0, 100)), min_size=100, max_size=150))
def test_of_the_lines_below_the_limit_most_are_worse(lines):
    confidences, scores = np.array(lines).T
    limit = confidence_limit(confidences.tolist(), scores.tolist())
    if limit is not None:
        order = np.argsort(confidences, kind="stable")
        counts = range(1, len(lines) // 10 + 1)
        shares = [float((scores[order[:n]] < np.median(scores)).mean()) for n in counts]
        kept_counts = [n for n, share in zip(counts, shares, strict=True) if share >= 0.85]
        assert limit == round(float(confidences[order[kept_counts[-1] - 1]]), 4)


def test_words_are_letters_or_digits():
    assert wordless("... 🙂")
    assert not any(map(wordless, ["", " ", "3", "a.", "你好"]))


def test_the_file_is_compared_with_its_checksum(tmp_path):
    (run,), _ = open_runs("es-en")
    folder = tmp_path / "copy"
    run.export(folder)
    (copy,), _ = open_runs(folder)
    assert Doubts.open(copy) == Doubts.open(run)
    path = folder / "doubts.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"version":1', '"version":2'), encoding="utf-8"
    )
    with pytest.raises(CorruptedError, match=r"doubts.json"):
        Doubts.open(copy)
