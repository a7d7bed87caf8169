"""Files of formats: only their text is translated, whole or not at all."""

from __future__ import annotations

import gzip
import lzma

import pytest
from tests.journeys.commands import check_refused, leftovers, run

TINY = ("--model", "es-en-tiny")
SRT = "1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>El gato\r\nduerme.</i>\r\n\r\n2\r\n"
VTT = "WEBVTT\n\nNOTE Hace frío.\n\na\n00:01.000 --> 00:02.000 line:0\nEl gato duerme.\n"
PO = 'msgid "El gato duerme."\nmsgstr ""\n\n#, fuzzy\nmsgid "Sí"\nmsgstr "Hm"\n'
HTML = "<p>El gato duerme.</p><!-- El gato -->\n"
XLIFF = '<xliff version="1.2"><trans-unit id="1"><source>El gato duerme.</source></trans-unit></xliff>\n'
MARKDOWN = "# El gato duerme.\n\n```\nEl gato\n```\n"
TARGET = '<target state="needs-review-translation">The cat sleeps.</target>'
FILES = {
    "html": (HTML, HTML.replace("El gato duerme.", "The cat sleeps.")),
    "md": (MARKDOWN, MARKDOWN.replace("El gato duerme.", "The cat sleeps.")),
    "xlf": (XLIFF, XLIFF.replace("</source>", f"</source>{TARGET}")),
    "po": (PO, PO.replace('msgstr ""', 'msgstr "The cat sleeps."')),
    "srt": (SRT, SRT.replace("El gato", "The cat").replace("duerme.", "sleeps.")),
    "vtt": (VTT, VTT.replace("El gato duerme.", "The cat sleeps.")),
}
BROKEN = {
    "html": ("<a " * 200, ":1: < occurs, and never >"),
    "xlf": ("<xliff>\n<", ":2: not well-formed XML"),
    "po": ('msgid "a"\nmsgstr "\n', ":2: expected a keyword"),
    "srt": ("1\n00:00:01,000 --> then\nHola.\n", ":2: expected two times"),
    "vtt": ("Hola.\n", ":1: expected WEBVTT"),
}


@pytest.fixture(autouse=True)
def libraries():
    pytest.importorskip("pysubs2")
    pytest.importorskip("polib")
    pytest.importorskip("markdown_it")


@pytest.mark.parametrize("kind", FILES)
def test_only_the_text_is_translated(kind, tmp_path):
    source, out = tmp_path / f"film.{kind}", tmp_path / "out"
    text, expected = FILES[kind]
    source.write_bytes(text.encode())
    result = run("translate", *TINY, "--input", source, "--output", out)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert out.read_bytes() == expected.encode()
    assert leftovers(tmp_path) == []


def test_the_format_of_a_stream_is_an_option():
    text, expected = FILES["srt"]
    result = run("translate", *TINY, "--input-format", "srt", stdin=text.encode())
    assert (result.code, result.out.encode()) == (0, expected.encode())


def test_packed_files_have_formats_and_doubts_name_lines_of_the_file(tmp_path):
    source = tmp_path / "film.srt.gz"
    source.write_bytes(gzip.compress(SRT.replace("duerme", "zzqx flurbo").encode()))
    result = run("translate", *TINY, "--input", source)
    assert result.code == 0
    assert result.out.startswith("1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>")
    assert ": line 3" in result.err


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_and_the_old_output_stays(kind, tmp_path):
    source, out = tmp_path / f"film.{kind}", tmp_path / "out"
    text, message = BROKEN[kind]
    for content, objection in ((text.encode(), message), (b"1\n\xff\n", ":2: byte 1")):
        source.write_bytes(content)
        out.write_text("old", encoding="utf-8")
        result = run("translate", *TINY, "--input", source, "--output", out)
        check_refused(result, f"{source}{objection}")
        assert out.read_text(encoding="utf-8") == "old"
        assert leftovers(tmp_path) == []


def test_options_of_lines_are_refused_and_lines_can_be_asked_for(tmp_path):
    source = tmp_path / "film.srt"
    source.write_text("Hace frío.\n", encoding="utf-8")
    refused = run("translate", *TINY, "--input", source, "--nbest", "2")
    check_refused(refused, "--input-format srt and --nbest", code=2)
    result = run("translate", *TINY, "--input", source, "--input-format", "lines")
    assert (result.code, result.out) == (0, "It's cold.\n")


@pytest.mark.parametrize("name", ["memory.tmx", "memory.TMX.gz"])
def test_a_translation_memory_is_no_text(name, tmp_path):
    source, out = tmp_path / name, tmp_path / "out"
    source.write_text(
        '<tmx><tu><tuv lang="es"><seg>Hola</seg></tuv></tu></tmx>\n', encoding="utf-8"
    )
    refused = run("translate", *TINY, "--input", source, "--output", out)
    check_refused(refused, f"{source}: a translation memory is a corpus", code=2)
    assert not out.exists()


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pysubs2", None)
    source = tmp_path / "film.srt"
    source.write_text(SRT, encoding="utf-8")
    refused = run("translate", *TINY, "--input", source)
    check_refused(refused, "pip install 'regard[formats]'", code=2)


def test_columns_of_a_packed_table(tmp_path):
    source = tmp_path / "table.xz"
    source.write_bytes(lzma.compress(b"1\tEl gato duerme.\tEl gato\n"))
    result = run("translate", *TINY, "--input", source, "--column", "2")
    assert (result.code, result.out) == (0, "1\tThe cat sleeps.\tEl gato\n")
    check_refused(
        run("translate", *TINY, "--column", "4", "--input", source), f"{source}:1", "4 columns"
    )
    check_refused(run("translate", *TINY, "--column", "1", "hola"), "--column and TEXT", code=2)
