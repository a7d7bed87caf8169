"""The tokenizers of BLEU: sacreBLEU's, by language and by script, and why one cannot be used."""

from __future__ import annotations

from typing import get_args

import pytest
from sacrebleu.metrics.bleu import BLEU

from regard.cli.evaluating import Tokenizer
from regard.errors import ConfigurationError
from regard.translation.evaluation import segmenting

TEXTS = {
    "zh": ["我喜欢猫。", "今天天气很好。"],
    "ja-mecab": ["ねこが好きです。", "今日は天気がいいです。"],
    "ko-mecab": ["나는 고양이를 좋아합니다."],
    "char": ["ฉันชอบแมว", "วันนี้อากาศดี"],
    None: ["Me gusta el gato.", "Я люблю кошек.", "Μου αρέσουν", "أحب القطط", "मुझे", "Ⅳ 5 …"],
}


def test_the_choices_are_sacrebleu_s():
    assert set(get_args(Tokenizer)) == BLEU.TOKENIZERS - {"spm"}  # spm is another name of flores101


@pytest.mark.parametrize("expected", TEXTS)
def test_a_script_asks_for_its_tokenizer(expected):
    assert segmenting.of_script(TEXTS[expected]) == expected
    note = segmenting.note("13a", TEXTS[expected])
    assert (note is None) == (expected is None)
    if expected is not None:
        assert f"--tokenize {expected}" in note
        assert segmenting.note(expected, TEXTS[expected]) is None
        assert segmenting.note("flores200", TEXTS[expected]) is None


def test_a_quoted_foreign_word_asks_for_nothing_and_no_text_neither():
    assert segmenting.of_script(["The word 猫 means cat.", "1 2 3"]) is None
    assert segmenting.of_script([]) is segmenting.of_script(["", "1"]) is None


@pytest.mark.parametrize(
    ("code", "name"),
    [("zh", "zh"), ("zh-CN", "zh"), ("zho_Hans", "zh"), ("jpn_Jpan", "ja-mecab"), ("ko", "ko-mecab"),
     ("th", "char"), ("en", "13a"), ("es", "13a"), ("target", "13a"), ("", "13a")],
)  # fmt: skip
def test_a_language_has_its_tokenizer(code, name):
    assert segmenting.of_language(code) == name
    assert segmenting.objection(segmenting.plain(name)) is None


def test_a_tokenizer_that_is_not_here_is_refused_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(segmenting, "find_spec", lambda name: None)
    for name, package in (("ja-mecab", "ja"), ("ko-mecab", "ko")):
        with pytest.raises(ConfigurationError, match=rf'pip install "sacrebleu\[{package}\]"'):
            segmenting.check(name)
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    for name in ("flores101", "flores200", "spBLEU-1K"):
        with pytest.raises(ConfigurationError, match=f"with a network.*--tokenize {name}"):
            segmenting.check(name)
    assert list(tmp_path.iterdir()) == []  # nothing was fetched
