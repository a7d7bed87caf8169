"""What is printed of a translation, by column and as JSON."""

from __future__ import annotations

import io
import json

import pytest

from regard.cli.output.answers import OutputOptions, confidences, pharaoh
from regard.translation.results import Candidate, Translation, Word

WORDS = [Word("The", 0.999), Word("cat.", 0.6), Word("Two", 0.3), Word("«n»\u2028", 0.004)]
BEST = Candidate("The cat. Two «n»\u2028", -0.5, -1.25, WORDS, [(1, 0), (0, 1)])
OTHER = Candidate("A cat.", -0.75, -2.0, [Word("A", 0.5), Word("cat.", 0.25)], [(0, 0)])
FOUND = Translation('Un "gato"\\\u2028\x85', **vars(BEST), alternatives=[BEST, OTHER])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(translation, number, **options):
    show = confidences(io.StringIO()) if options.get("confidence") else None
    return OutputOptions(**options).lines(translation, number, show)


def test_the_text_alone_is_one_column():
    assert list(lines(FOUND, 7)) == [BEST.text]
    assert list(lines(Translation("", ""), 7)) == [""]


def test_columns_are_number_score_text_and_alignment():
    assert list(lines(FOUND, 7, nbest=2, scores=True, alignment=True)) == [
        f"7\t-0.5000\t{BEST.text}\t1-0 0-1",
        "7\t-0.7500\tA cat.\t0-0",
    ]
    assert list(lines(FOUND, 1, nbest=9)) == [f"1\t{BEST.text}", "1\tA cat."]
    all_options = {"nbest": 2, "scores": True, "alignment": True}
    assert list(lines(Translation("", ""), 3, **all_options)) == ["3\t0.0000\t\t"]


def test_words_show_their_confidence_in_figures():
    (line,) = lines(FOUND, 1, confidence=True)
    assert line == "The|1.00 cat.|0.60 Two|0.30 «n»\u2028|0.00"


def test_words_show_their_confidence_in_colours_where_there_are_any(monkeypatch):
    assert confidences(Terminal())(WORDS[:1]) == "The|1.00"  # NO_COLOR is set
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    shades = confidences(Terminal())(WORDS)
    assert shades.split(" ") == [
        "The",
        "\x1b[33mcat.\x1b[0m",
        "\x1b[31mTwo\x1b[0m",
        "\x1b[1;31m«n»\u2028\x1b[0m",
    ]


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_json_is_one_strict_line_whatever_the_text():
    (line,) = lines(FOUND, 1, format="json", nbest=2, alignment=True)
    assert len(line.splitlines()) == 1
    assert "«n»" in line
    document = json.loads(line, parse_constant=refuse)
    assert document["source"] == FOUND.source
    assert document["translation"] == BEST.text
    assert (document["score"], document["log_probability"]) == (-0.5, -1.25)
    assert document["words"][1] == {"word": "cat.", "confidence": 0.6}
    assert document["alignment"] == "1-0 0-1"
    assert [one["translation"] for one in document["nbest"]] == [BEST.text, OTHER.text]
    assert document["nbest"][1] == {
        "translation": "A cat.",
        "score": -0.75,
        "log_probability": -2.0,
        "words": [{"word": "A", "confidence": 0.5}, {"word": "cat.", "confidence": 0.25}],
        "alignment": "0-0",
    }


def test_json_says_no_more_than_was_asked_for():
    (line,) = lines(Translation("", ""), 1, format="json")
    assert json.loads(line) == {
        "source": "",
        "translation": "",
        "score": 0.0,
        "log_probability": 0.0,
        "words": [],
        "quality": None,
        "unknown": [],
        "unseen": [],
        "repeats": False,
        "unfinished": False,
        "doubts": [],
        "invented": [],
        "read_as": {},
        "terms": {},
        "sentences": [],
    }


def test_a_number_that_is_none_is_no_json():
    with pytest.raises(ValueError, match="Out of range"):
        list(lines(Translation("a", "b", score=float("nan")), 1, format="json"))


def test_no_links_are_an_empty_text():
    assert pharaoh([]) == ""
