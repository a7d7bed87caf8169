"""Notes about doubtful translations: each kind is counted, and the first few lines are named."""

from __future__ import annotations

from regard.cli.output.doubts import DoubtCounts
from regard.translation.doubts import doubted
from regard.translation.results import Translation


def doubtful(source: str, text: str, **fields) -> Translation:
    return doubted(Translation(source, text, **fields), None)


def printed_lines(doubts: DoubtCounts, capsys) -> list[str]:
    doubts.say()
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_nothing_doubtful_is_nothing_said(capsys):
    doubts = DoubtCounts(512)
    doubts.add([doubtful("", ""), doubtful("a", "b")])
    assert printed_lines(doubts, capsys) == []
    assert set(doubts.as_object().values()) == {0}


def test_each_kind_is_counted_with_its_lines(capsys):
    doubts = DoubtCounts(512)
    plain = doubtful("a", "b")
    doubts.add([plain, plain, doubtful("a", "b", repeats=True, unfinished=True)])
    doubts.add([plain] * 13 + [doubtful("a", "b", repeats=True, unknown=["é", "ß", "é"])])
    assert printed_lines(doubts, capsys) == [
        "note: 3 unknown characters in 1 of 17 sentences (é ß): not in the model's vocabulary, "
        "and may be translated wrongly: line 17",
        "note: 2 of 17 translations searched again because of repetitions: lines 3, 17",
        "note: 1 of 17 translations reached the greatest length allowed and stopped there: line 3",
    ]


def test_of_many_the_first_ten_are_named(capsys):
    doubts = DoubtCounts(512, "sentence")
    doubts.add(doubtful("a", "b", cut=1, unknown=[chr(0x4E00 + i)]) for i in range(500))
    cut, unknown = printed_lines(doubts, capsys)
    assert cut == "note: 500 of 500 sentences were longer than 512 pieces and were cut"
    assert "500 unknown characters in 500 of 500 sentences (一 丁" in unknown
    assert unknown.endswith("sentences 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...")
    assert unknown.count("...") == 2


def test_pieces_that_were_never_learnt_are_counted_apart(capsys):
    doubts = DoubtCounts(512)
    doubts.add([doubtful("a", "b"), doubtful("ab b", "b", unseen=["b", "▁b", "▁", "b"])])
    assert printed_lines(doubts, capsys) == [
        "note: 4 word pieces in 1 of 2 sentences (-b b ▁): they never occurred in the training "
        "sources and may be translated wrongly: line 2"
    ]
    assert doubts.as_object()["unseen"] == 1


def test_a_character_that_steers_a_terminal_is_shown(capsys):
    doubts = DoubtCounts(512)
    doubts.add([doubtful("a", "b", unknown=["\u202e"])])
    assert "\\u202e" in printed_lines(doubts, capsys)[0]


def test_what_the_training_text_tells_is_counted_too(capsys):
    doubts = DoubtCounts(512)
    reasons = ["unknown script", "other language", "odd length", "low confidence"]
    doubts.add([doubtful(".", "b"), Translation("a", "b", doubts=reasons)])
    notes = printed_lines(doubts, capsys)
    assert notes[0] == "note: no words in 1 of 2 sources: line 1"
    assert len(notes) == 5
    assert all(note.endswith(": line 2") for note in notes[1:])
    assert all(doubts.as_object()[name] == 1 for name in ["no words", *reasons])
