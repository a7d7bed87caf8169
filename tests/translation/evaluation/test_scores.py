"""Scores against sacreBLEU's own front door."""

from __future__ import annotations

import pytest
import sacrebleu

from regard.errors import ConfigurationError, DataError
from regard.translation.evaluation.scores import measure

OURS = ["The cat sat on the mat.", "He doesn't go home today.", "yes", "It is raining again , now"]
GIVEN = ["The cat sat on a mat.", "he does not go home today.", "yes", "It rains again, right now."]


def test_the_defaults_are_those_of_sacrebleu():
    scores = measure(OURS, GIVEN)
    assert scores.bleu == sacrebleu.corpus_bleu(OURS, [GIVEN]).score
    assert scores.chrf == sacrebleu.corpus_chrf(OURS, [GIVEN]).score
    assert scores.ter == sacrebleu.corpus_ter(OURS, [GIVEN]).score
    assert scores.exact == 25.0
    assert scores.sentences == 4
    version = sacrebleu.__version__
    assert scores.signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}",
        "ter": f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version}",
    }


def test_only_what_is_asked_for_is_measured():
    scores = measure(OURS, GIVEN, measures=["exact"])
    assert (scores.bleu, scores.chrf, scores.ter, scores.signatures) == (None, None, None, {})


def test_equal_texts_are_perfect_and_empty_translations_are_counted():
    perfect = measure(GIVEN, GIVEN)
    assert (perfect.bleu, perfect.chrf, perfect.ter, perfect.exact) == pytest.approx(
        (100, 100, 0, 100)
    )
    empty = measure(["", *GIVEN[1:]], GIVEN)
    assert empty.sentences == 4
    assert empty.bleu < 100
    assert empty.exact == 75.0


def test_as_text_there_is_a_line_for_each_measure_with_its_signature():
    lines = str(measure(OURS, GIVEN)).split("\n")
    assert [line.split()[0] for line in lines] == ["BLEU", "chrF", "TER", "exact"]
    assert lines[0].endswith(f"version:{sacrebleu.__version__}")
    assert lines[3] == "exact match 25.00"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a"], ["a", "b"], {}), DataError, "1 translations for 2 references"),
        (([], [], {}), DataError, "nothing to compare"),
        ((["a"], ["a"], {"measures": ["blue"]}), ConfigurationError, "no measure 'blue'"),
        (
            (["a"], ["a"], {"tokenizer": "words"}),
            ConfigurationError,
            "no tokenizer 'words': use 13a, ",
        ),
    ],
)
def test_mistakes_are_told(arguments: tuple, error: type[Exception], message: str):
    ours, inputs, settings = arguments
    with pytest.raises(error, match=message):
        measure(ours, inputs, **settings)


OTHERS = ["A cat sat on the mat.", "He doesn't go home.", "no", "It is raining again , now"]


def test_several_references_are_those_of_sacrebleu():
    scores = measure(OURS, GIVEN, OTHERS)
    references = [GIVEN, OTHERS]
    assert scores.bleu == sacrebleu.corpus_bleu(OURS, references).score
    assert scores.chrf == sacrebleu.corpus_chrf(OURS, references).score
    assert scores.ter == sacrebleu.corpus_ter(OURS, references).score
    assert scores.exact == 50.0  # the third equals its first reference, the fourth its second
    assert scores.bleu > max(measure(OURS, one).bleu for one in references)
    assert scores.signatures["bleu"].startswith("nrefs:2|")


CHINESE = ["我喜欢猫。", "今天天气很好。"]


def test_the_tokenizer_is_sacrebleu_s_and_its_signature_says_so():
    assert measure(CHINESE, CHINESE).bleu == 0
    scores = measure(CHINESE, CHINESE, tokenizer="zh")
    assert scores.bleu == pytest.approx(100)
    assert "|tok:zh|" in scores.signatures["bleu"]
    worse = ["我喜欢狗。", "今天很好。"]
    assert measure(worse, CHINESE, tokenizer="zh").bleu == (
        sacrebleu.corpus_bleu(worse, [CHINESE], tokenize="zh").score
    )
    # One of five characters is another, two of seven are missing: each is a word for TER.
    assert measure(worse, CHINESE, tokenizer="zh", measures=["ter"]).ter == pytest.approx(25.0)


def test_an_empty_reference_beside_one_with_text_is_no_exact_match():
    scores = measure(["", "x", ""], ["a cat", "x", ""], ["", "y", ""], measures=["exact"])
    assert scores.exact == pytest.approx(100 * 2 / 3)
