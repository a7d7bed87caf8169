"""One line in, one line out, whatever the line holds; and the pictures that go with it."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest
from tests.journeys.commands import check_refused, run, run_apart

from regard.cli import shipped

SEPARATORS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\x00"]


def translate(model, text: str, *more: str) -> list[str]:
    result = run("translate", "--model", model, *more, stdin=text.encode("utf-8"))
    assert result.code == 0, result
    assert "Traceback" not in result.err
    return result.lines


def test_each_argument_is_a_sentence_and_each_line_too(trained):
    sentences = ["El gato ve el mar hoy.", "El niño come aquí."]
    result = run("translate", "--model", trained, *sentences)
    assert result.code == 0
    assert len(result.lines) == 2
    assert translate(trained, "".join(line + "\n" for line in sentences)) == result.lines


def test_an_empty_line_gives_an_empty_line(trained):
    assert translate(trained, "El sol\n\n \t \nEl mar\n") == [
        *translate(trained, "El sol"),
        "",
        "",
        *translate(trained, "El mar"),
    ]


@pytest.fixture(scope="module")
def two_lines(trained):
    return translate(trained, "El gato ve el mar\nEl sol\n")


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_only_a_line_feed_ends_a_line(separator, trained, two_lines):
    assert len(two_lines) == 2
    assert two_lines == translate(trained, f"El gato{separator}ve el mar\nEl sol\n")


def test_nothing_in_gives_nothing_out(trained):
    assert run("translate", "--model", trained).out == ""
    assert translate(trained, "El gato") == translate(trained, "El gato\n")
    assert run("translate", "--model", trained, "").out == "\n"


def test_a_byte_order_mark_and_carriage_returns_are_no_text(trained):
    assert translate(trained, "\ufeffEl gato\r\nEl sol\r\n") == translate(
        trained, "El gato\nEl sol\n"
    )


def test_hard_unicode_stays_one_line_of_utf8(trained):
    lines = [
        "e\u0301l gato",
        "👩‍👩‍👧‍👦 ve",
        "\u202eel mar\u202c",
        "a" + "\u0301" * 500,
        "\U0010fffd\U000e0001",
        "<s> </s> <pad> <unk> ▁ @@ <0x41>",
    ]
    translations = translate(trained, "\n".join(lines) + "\n")
    assert len(translations) == len(lines)
    assert translate(trained, unicodedata.normalize("NFC", lines[0])) == translations[:1]


def test_lone_surrogates_are_no_crash(trained):
    result = run("translate", "--model", trained, "\udced\udca0\udc80 gato", "\ud800")
    assert result.code == 0
    assert len(result.lines) == 2


@pytest.mark.parametrize("line", ["a" * 10**6, "el " * 100_000], ids=["word", "words"])
def test_an_endless_line_is_cut_and_said_so(line, trained):
    text = f"El sol\n{line}\n".encode()
    result = run_apart("translate", "--model", trained, "--beam", "1", stdin=text)
    assert result.code == 0
    assert len(result.lines) == 2
    assert "1 of 2 sentences were longer than 512 pieces" in result.err
    assert result.seconds < 20
    assert result.growth < 1.7 * 2**30


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        (b"El gato\n\xff\xfe\xc3\x28\n", ["standard input:2", "0xff"]),
        ("El ni\u00f1o\n".encode("latin-1"), ["standard input:1", "byte 6"]),
        ("El gato\n".encode("utf-16"), ["standard input:1", "UTF-16", "iconv"]),
    ],
    ids=["bytes", "latin-1", "utf-16"],
)
def test_what_is_not_utf8_is_named(spoilt, named, trained):
    check_refused(run("translate", "--model", trained, stdin=spoilt), *named)


def test_lines_are_translated_in_chunks_of_bounded_size():
    # A model of a few steps writes near ties, which a batch may turn: this is a bundled one.
    text = "".join(f"El gato ve {number}\n" for number in range(300))
    lines = translate("es-en-tiny", text, "--beam", "1")
    assert len(lines) == 300
    short_text = "".join(text.splitlines(keepends=True)[:4])
    assert translate("es-en-tiny", short_text, "--beam", "1", "--line-buffered") == lines[:4]


def test_several_translations_and_their_scores(trained):
    lines = translate(trained, "El gato\nEl sol\n", "--beam", "4", "--nbest", "3", "--scores")
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    best = translate(trained, "El gato\nEl sol\n", "--beam", "4", "--scores")
    assert best == ["\t".join(rows[0][1:]), "\t".join(rows[3][1:])]


def test_asking_for_more_than_the_beam_widens_it_or_is_refused(trained):
    assert len(translate(trained, "El gato\n", "--nbest", "7")) == 7
    result = run("translate", "--model", trained, "--beam", "2", "--nbest", "3", "El gato")
    check_refused(result, "nbest 3 with beam 2", code=2)


def test_a_seed_repeats_what_chance_drew(trained):
    drawing = ["--sample", "--temperature", "2", "--top-p", "0.95"]
    translations = translate(trained, "El gato\n" * 5, *drawing, "--seed", "7")
    assert translate(trained, "El gato\n" * 5, *drawing, "--seed", "7") == translations
    assert translate(trained, "El gato\n" * 5, *drawing, "--seed", "8") != translations


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--beam", "0"], "beam 0"),
        (["--beam", "1000000000"], "beam 1000000000"),
        (["--length-penalty", "nan"], "length_penalty nan"),
        (["--nbest", "0"], "nbest 0"),
        (["--temperature", "1"], "--sample"),
        (["--sample", "--top-p", "0"], "top_p 0"),
        (["--sample", "--seed", "-1"], "--seed -1"),
        (["--device", "abacus"], "--device abacus"),
        (["--beam", "four"], "--beam"),
        (["--bem", "4"], "--bem"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, named, trained):
    check_refused(run("translate", "--model", trained, *wrong, "El gato"), named, code=2)


def test_an_unknown_model_is_refused_by_name(tmp_path):
    check_refused(run("translate", "--model", "xx-yy", "a"), "xx-yy")
    check_refused(run("translate", "--model", tmp_path, "a"), tmp_path, "config.toml")
    check_refused(run("translate", "--model", "a\0b", "a"), "no such model")


def test_a_look_is_drawn_under_each_translation(trained):
    result = run("translate", "--model", trained, "--look", "El gato ve el mar hoy.")
    assert result.code == 0
    assert "layer 0, mean of 2 heads" in result.out
    (keys,) = [line for line in result.lines if "gato" in line]
    assert keys.split() == ["El", "gato", "ve", "el", "mar", "hoy.", "</s>"]
    assert "\x1b" not in result.out  # no colours into a file


def test_an_empty_sentence_has_no_look(trained):
    assert run("translate", "--model", trained, "--look", "").out == "\n"


@pytest.mark.skipif("es-en" not in shipped.models(), reason="the model es-en is not bundled here")
def test_the_bundled_model_translates_by_default():
    result = run("translate", "¿Todavía está en casa?", "--look")
    assert result.code == 0
    assert "home" in result.lines[0].lower()
    assert "casa?" in result.out


def test_without_a_compiler_the_layers_do_it(trained):
    """NUMBA_DISABLE_JIT, as debuggers set it: slower, and nothing else is different."""
    command = [sys.executable, "-m", "regard", "translate", "--model", str(trained)]
    stdin = b"El gato.\nLa casa.\n"
    compiled = run("translate", "--model", trained, stdin=stdin)
    surroundings = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    uncompiled = subprocess.run(
        command, input=stdin, capture_output=True, check=False, env=surroundings
    )
    assert (uncompiled.returncode, uncompiled.stderr.decode()) == (0, compiled.err)
    assert uncompiled.stdout.decode() == compiled.out
    assert uncompiled.stdout.count(b"\n") == 2
