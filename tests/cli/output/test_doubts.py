"""Notes about doubtful translations: each kind is counted, and the first few lines are named."""

from __future__ import annotations

from regard.cli.output.doubts import Doubts
from regard.translation.translator import Translation


def said(doubts: Doubts, capsys) -> list[str]:
    doubts.say()
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_nothing_doubtful_is_nothing_said(capsys):
    doubts = Doubts(512)
    doubts.add([Translation("", ""), Translation("a", "b")])
    assert said(doubts, capsys) == []
    assert doubts.as_object() == {
        "cut": 0,
        "repeats": 0,
        "unfinished": 0,
        "unknown": 0,
        "unseen": 0,
    }


def test_each_kind_is_counted_with_its_lines(capsys):
    doubts = Doubts(512)
    plain = Translation("a", "b")
    doubts.add([plain, plain, Translation("a", "b", repeats=True, unfinished=True)])
    doubts.add([plain] * 13 + [Translation("a", "b", repeats=True, unknown=["é", "ß", "é"])])
    assert said(doubts, capsys) == [
        "note: 3 unknown characters in 1 of 17 sentences (é ß): not in the model's vocabulary, "
        "and may be translated wrongly: line 17",
        "note: 2 of 17 translations repeat themselves: lines 3, 17; --no-repeat-ngram 4 forbids that",
        "note: 1 of 17 translations reached the greatest length allowed and stopped there: line 3",
    ]


def test_of_many_the_first_ten_are_named(capsys):
    doubts = Doubts(512, "sentence")
    doubts.add(Translation("a", "b", cut=1, unknown=[chr(0x4E00 + i)]) for i in range(500))
    cut, unknown = said(doubts, capsys)
    assert cut == "note: 500 of 500 sentences were longer than 512 pieces and were cut"
    assert "500 unknown characters in 500 of 500 sentences (一 丁" in unknown
    assert unknown.endswith("sentences 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...")
    assert unknown.count("...") == 2


def test_pieces_that_were_never_learnt_are_counted_apart(capsys):
    doubts = Doubts(512)
    doubts.add([Translation("a", "b"), Translation("ab b", "b", unseen=["b", "▁b", "▁", "b"])])
    assert said(doubts, capsys) == [
        "note: 4 word pieces in 1 of 2 sentences (-b b ▁): they never occurred in the training "
        "sources and may be translated wrongly: line 2"
    ]
    assert doubts.as_object()["unseen"] == 1


def test_a_character_that_steers_a_terminal_is_shown(capsys):
    doubts = Doubts(512)
    doubts.add([Translation("a", "b", unknown=["\u202e"])])
    assert "\\u202e" in said(doubts, capsys)[0]
