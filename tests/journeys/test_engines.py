"""`regard translate --engine ctranslate2`: the same translations, sooner; what it cannot do is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, run

pytest.importorskip("ctranslate2")

TEXT = """El gato negro duerme en la silla.
¿Dónde está la estación de trenes?

Mi hermana vive en una casa muy grande cerca del mar.
Cuando llegué, ya se habían ido todos.
¡Qué calor hace hoy!
""".encode()
ENGINE = ("--engine", "ctranslate2")


def lines(*arguments: str | Path, text: bytes = TEXT) -> list[str]:
    result = run("translate", *arguments, stdin=text)
    assert result.code == 0, result
    return result.lines


def test_it_says_what_our_own_search_says():
    options = ("--nbest", "2", "--scores", "--beam", "3", "--length-penalty", "0.8")
    own_lines = lines(*options)
    theirs = lines(*options, *ENGINE)
    assert [line.split("\t")[0::2] for line in theirs] == [
        line.split("\t")[0::2] for line in own_lines
    ]
    for a, b in zip(theirs, own_lines, strict=True):
        if b:
            score, expected = (float(line.split("\t")[1]) for line in (a, b))
            assert score == pytest.approx(expected, abs=2e-3)


def test_an_exported_folder_that_was_damaged_is_refused(tmp_path):
    assert run("export", "--to", "ctranslate2", tmp_path / "made").code == 0
    path = tmp_path / "made" / "model.bin"
    whole_content = path.read_bytes()
    path.write_bytes(whole_content[:-9] + bytes([whole_content[-9] ^ 64]) + whole_content[-8:])
    result = run("translate", "--model", tmp_path / "made", *ENGINE, stdin=TEXT)
    check_refused(result, path, "corrupted or truncated")


def test_an_exported_folder_is_a_model_too(tmp_path):
    assert run("export", "--to", "ctranslate2", tmp_path / "made").code == 0
    own_lines = lines()
    assert lines("--model", tmp_path / "made", *ENGINE) == own_lines
    text = "El Sr. García duerme.  Hola."
    (line,) = lines("--model", tmp_path / "made", *ENGINE, text)
    assert lines("--model", tmp_path / "made", *ENGINE, "--paragraphs", text) == [line]
    assert lines("--model", tmp_path / "made", *ENGINE, "--whole-lines", text) != [line]
    refused = run("translate", "--model", tmp_path / "made", *ENGINE, "--to", "en", "Hola.")
    check_refused(refused, "--to en", "name the model it was made of", code=2)
    refused = run("translate", "--model", tmp_path / "made", "Hola.")
    check_refused(refused, "add --engine ctranslate2")


@pytest.mark.parametrize(
    "option",
    [
        ("--look",),
        ("--alignment",),
        ("--confidence",),
        ("--format", "json"),
        ("--prefix", "The"),
        ("--sample",),
        ("--coverage-penalty", "0.2"),
        ("--batch-tokens", "100"),
        ("--model", "es-en", "--model", "es-en"),
    ],
    ids=" ".join,
)
def test_what_it_has_no_answer_to_is_refused(option):
    check_refused(run("translate", *ENGINE, *option, "Hola."), "--engine ctranslate2", code=2)


def test_a_recurrent_model_is_refused():
    refused = run("translate", "--model", "es-en-recurrent", *ENGINE, "Hola.")
    check_refused(refused, "CTranslate2 has no recurrent layers", code=1)


def test_it_rounds_to_eight_bits():
    result = run("translate", "El gato negro duerme.", *ENGINE, "--quantization", "int8")
    assert (result.lines, result.err) == (["The black cat sleeps."], "")


def test_explain_says_which_engine_searches_and_why():
    compiled = run("translate", "--explain", "Hola.")
    assert "engine: compiled (after 100 sentences: loading compiled loops takes" in compiled.err
    recurrent = run("translate", "--explain", "--model", "es-en-recurrent", "Hola.")
    assert "this is a RecurrentModel" in recurrent.err
    assert run("translate", "--explain", *ENGINE, "Hola.").err.startswith("engine: ctranslate2")


def test_where_it_is_not_installed_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    refused = run("translate", *ENGINE, "Hola.")
    check_refused(refused, "pip install 'regard[ctranslate2]'", code=2)
