"""Tables for people and JSON for machines."""

from __future__ import annotations

import json

from tests.journeys.commands import run

from regard.cli.output import report


def test_columns_stand_under_one_another():
    rows = [["", "AER", ""], ["head 0", "47.4", "x"], ["a", "9.0", ""]]
    assert report.table(rows) == "        AER\nhead 0 47.4 x\na       9.0"


def test_no_name_of_a_file_steers_the_terminal(capsys):
    report.say("wrote a\x1b[31mb\tc\u2066d\ne")
    report.note("chosen by \x1b]0;title\x07")
    assert capsys.readouterr() == (
        "wrote a\\u001b[31mb\tc\\u2066d\ne\n",
        "note: chosen by \\u001b]0;title\\u0007\n",
    )
    assert report.as_json("\x9b") == '"\\u009b"'


def test_numbers_that_are_none_are_null():
    entries = {"a": float("nan"), "b": [float("inf"), (1, 2.5)], 3: "é"}
    assert json.loads(report.as_json(entries)) == {"a": None, "b": [None, [1, 2.5]], "3": "é"}


def test_data_alone_shows_what_there_is_to_do():
    result = run("data")
    assert result.code == 0
    assert "\n  check " in result.out
    assert result.out == run("data", "--help").out


def test_a_speed_is_told_once_it_is_known(capsys, monkeypatch):
    monkeypatch.setattr(report, "_EVERY", 0.0)
    with report.counted("sentences", 10) as show:
        for step in (4, 6, 8):
            show(step, " read")
    first_line, *_, last_line = capsys.readouterr().err.splitlines()
    assert first_line == "4 of 10 sentences read"
    assert last_line.startswith("8 of 10 sentences read, ")
    assert last_line.endswith(" sentences/s")
