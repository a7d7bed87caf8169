"""Files in, files out, whole or not at all; notes on translations that may be wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from tests.journeys.commands import check_refused, leftovers, run, start

SENTENCES = ["El gato ve el mar hoy.", "", "El niño come aquí.", "El sol busca la casa."]
TEXT = "".join(line + "\n" for line in SENTENCES).encode()
# The bundled model writes 88 words for these 23.
LOOPING = "Привет, как дела?"  # greedy search repeats itself: the model knows none of these letters


@pytest.mark.parametrize(
    "style",
    [
        (),
        ("--format", "json"),
        ("--nbest", "2", "--scores", "--alignment", "--confidence"),
        ("--paragraphs",),
        ("--line-buffered",),
    ],
    ids=" ".join,
)
def test_files_hold_what_the_streams_hold(style, trained, tmp_path):
    if "--paragraphs" in style:
        pytest.importorskip("sentencex")
    source, out = tmp_path / "text.es", tmp_path / "text.en"
    source.write_bytes(TEXT)
    out.write_text("old", encoding="utf-8")
    streams = run("translate", "--model", trained, *style, stdin=TEXT)
    files = run("translate", "--model", trained, *style, "--input", source, "--output", out)
    assert (files.code, files.out) == (0, "")
    assert files.err == streams.err
    assert out.read_bytes() == streams.out.encode()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("style", [(), ("--format", "json"), ("--paragraphs",)], ids=" ".join)
def test_a_line_that_cannot_be_read_is_named_and_the_old_output_stays(style, trained, tmp_path):
    if "--paragraphs" in style:
        pytest.importorskip("sentencex")
    source, out = tmp_path / "text.es", tmp_path / "text.en"
    source.write_bytes(TEXT + b"\xff\n" + TEXT)
    out.write_text("old", encoding="utf-8")
    result = run("translate", "--model", trained, *style, "--input", source, "--output", out)
    check_refused(result, f"{source}:5: byte 1", "0xff")
    assert out.read_text(encoding="utf-8") == "old"
    assert leftovers(tmp_path) == []


def test_a_kill_leaves_neither_half_an_output_nor_another_file(trained, tmp_path):
    out = tmp_path / "text.en"
    arguments = ("--model", trained, "--line-buffered", "--output", out)
    started = start("translate", *arguments, stdin=subprocess.PIPE)
    assert started.stdin is not None
    started.stdin.write(TEXT)
    started.stdin.flush()
    # Once a line is written the command waits for the next one: no import or compilation can swallow the signal.
    while not any(each.stat().st_size for each in tmp_path.iterdir()) and started.poll() is None:
        time.sleep(0.05)
    assert not out.exists()
    assert leftovers(tmp_path) != []
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_the_output_is_not_the_input(trained, tmp_path):
    source, soft, hard = tmp_path / "text.es", tmp_path / "soft", tmp_path / "hard"
    source.write_bytes(TEXT)
    soft.symlink_to(source)
    os.link(source, hard)
    for out in (source, soft, hard):
        result = run("translate", "--model", trained, "--input", source, "--output", out)
        check_refused(result, f"--output {out}: is the input", code=2)
    assert source.read_bytes() == TEXT
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "named", "code"),
    [
        (("--input", "nosuch.es"), "nosuch.es: no such file", 1),
        (("--input", "."), "is a folder", 1),
        (("--output", "nosuch/text.en"), "there is no folder nosuch", 1),
        (("--output", "."), "is a folder", 1),
        (("--input", "text.es", "El gato"), "TEXT and --input do not go together", 2),
        (("--output", "text.en", "--look", "El gato"), "--look and --output", 2),
    ],
)
def test_files_that_cannot_be_meant_are_refused(options, named, code, trained, tmp_path):
    (tmp_path / "text.es").write_bytes(TEXT)
    check_refused(run("translate", "--model", trained, *options), named, code=code)


def test_the_name_of_a_file_is_no_sentence(trained, tmp_path):
    (tmp_path / "two words.es").write_bytes(TEXT)
    result = run("translate", "--model", trained, "two words.es")
    check_refused(
        result,
        "TEXT 'two words.es' is the name of a file",
        "regard translate --input 'two words.es'",
        "regard translate < 'two words.es'",
        code=2,
    )
    check_refused(run("look", "--model", trained, "two words.es"), "name of a file", code=2)
    # Not refused: a folder, a text too long for a file's name, and a name on standard input.
    assert run("translate", "--model", trained, ".", "El gato" * 1000).code == 0
    assert run("translate", "--model", trained, stdin=b"two words.es\n").code == 0


def test_unknown_characters_are_counted_and_named(trained):
    text = "El gato ve Ω.\nEl sol\nΩ 中\n".encode()
    result = run("translate", "--model", trained, stdin=text)
    assert result.code == 0
    assert result.lines[0].endswith("Ω")  # among words that are read it is kept as it is
    assert "note: 2 unknown characters in 1 of 3 sentences (Ω 中)" in result.err
    assert "line 3" in result.err
    lines = run("translate", "--model", trained, "--format", "json", stdin=text).lines
    assert [json.loads(line)["unknown"] for line in lines] == [[], [], ["Ω", "中"]]
    assert "unknown" not in run("translate", "--model", trained, "El sol").err


def test_letters_in_one_word_are_doubted_where_each_was_a_word(tmp_path):
    small = ["training.max_steps=2", "data.generated.train=2000", "data.generated.valid=10"]
    trained = run("train", "reverse", "--run", "r", *[p for s in small for p in ("--set", s)])
    assert trained.code == 0, trained
    message = "4 word pieces in 1 of 1 sentence (-b -c -d -e): they never occurred in the training"
    assert message in run("translate", "--model", "r", "abcde").err
    assert "never occurred" not in run("translate", "--model", "r", "a b c d e").err
    result = run("translate", "--model", "r", "--format", "json", "a b", "ab")
    assert [json.loads(line)["unseen"] for line in result.lines] == [[], ["b"]]


def test_loops_are_stopped_counted_and_can_be_forbidden(tmp_path):
    text = f"Hace frío.\n{LOOPING}\n".encode()
    (tmp_path / "text.es").write_bytes(text)
    result = run("translate", "--beam", "1", stdin=text)
    assert result.code == 0
    assert "note: 1 of 2 translations searched again because of repetitions: line 2" in result.err
    outputs = [
        json.loads(line)
        for line in run("translate", "--beam", "1", "--format", "json", stdin=text).lines
    ]
    assert [one["repeats"] for one in outputs] == [False, True]
    assert [one["unfinished"] for one in outputs] == [False, False]
    assert "repeats" in outputs[1]["doubts"]
    without = run("translate", "--beam", "1", "--no-repeat-ngram", "4", stdin=text)
    assert "repetitions" not in without.err
    assert without.lines[0] == result.lines[0]
    second_result = run("translate", "--beam", "2", "--no-repeat-ngram", "4", stdin=text)
    assert second_result.lines[1] == result.lines[1]


def test_an_evaluation_has_the_same_search_and_counts_the_same(tmp_path):
    (tmp_path / "test.es").write_text(f"Hace frío.\n{LOOPING}\n", encoding="utf-8")
    (tmp_path / "test.en").write_text("It's cold.\nWhich is why.\n", encoding="utf-8")
    options = (
        "evaluate",
        "--beam",
        "1",
        "--source",
        "test.es",
        "--target",
        "test.en",
        "--format",
        "json",
    )
    free, bound = run(*options), run(*options, "--no-repeat-ngram", "4")
    assert json.loads(free.out)["doubts"] == {
        "cut": 0,
        "repeats": 1,
        "unfinished": 0,
        "unknown": 1,
        "unseen": 0,
        "invented": 0,
        "overlapping terms": 0,
        "no words": 0,
        "unknown script": 1,
        "other language": 0,
        "odd length": 1,
        "low confidence": 1,
    }
    assert "1 of 2 translations searched again because of repetitions: line 2" in free.err
    document = json.loads(bound.out)
    assert document["doubts"]["repeats"] == 0
    assert "no repeat ngram 4" in document["translations"]


def test_a_rule_about_repetition_is_a_whole_number(trained):
    result = run("translate", "--model", trained, "--no-repeat-ngram", "-1", "El gato")
    check_refused(result, "no_repeat_ngram -1: use a whole number", code=2)
