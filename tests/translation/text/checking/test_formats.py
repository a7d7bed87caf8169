"""Files of other formats are named, and what tools left in text is found; ordinary text is neither."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from regard.translation.text.checking import remains
from regard.translation.text.checking.corpus import check
from regard.translation.text.corpora import Tsv

LINES = [f"zdanie {n}\tsatz {n}" for n in range(30)]


def findings_of(path: Path) -> dict[str, list[str]]:
    findings = check([Tsv(path)]).findings.values()
    return {f"{one.level}: {one.fault}": one.where for one in findings}


def table(folder: Path, *lines: str) -> Path:
    path = folder / "a.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TMX", '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'),
        ("XLIFF", '\ufeff<?xml version="1.0"?>\n<xliff version="1.2">\n'),
        ("XML", "<?xml version='1.0'?>\n<corpus>\n"),
        ("PO", '# Titles.\nmsgid ""\nmsgstr ""\n\nmsgid "Hi"\nmsgstr "Hola"\n'),
        ("SRT", "1\r\n00:00:01,000 --> 00:00:02,000\r\nHola\r\n"),
        ("JSON", '{"es": "Hola", "en": "Hi"}\n{"es": "No", "en": "No"}\n'),
        ("JSON", '[\n  {"translation": {"es": "Hola", "en": "Hi"}}]\n'),
        ("WebVTT", "WEBVTT\n\n00:01.000 --> 00:02.000\nHola\n"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path, name, text):
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8", newline="")
    (finding,) = findings_of(tmp_path / "a.tsv")
    assert finding.startswith(f"error: {tmp_path / 'a.tsv'}: is {name}, not text")


def test_a_packed_file_is_named_with_what_unpacks_it(tmp_path):
    text = b"un gato\ta cat\n"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.tsv", text)
    (tmp_path / "a.tsv").write_bytes(text)
    for kind, mode in (("tar", "w"), ("tgz", "w:gz"), ("txz", "w:xz")):
        with tarfile.open(tmp_path / f"a.{kind}", mode) as archive:
            archive.add(tmp_path / "a.tsv", "folder/a.tsv")
    tools = {"zip": "unzip", "tar": "tar -xf", "tgz": "tar -xf", "txz": "tar -xf"}
    for name, tool in tools.items():
        (finding,) = findings_of(tmp_path / f"a.{name}")
        assert f"unpack it with `{tool}`" in finding


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "is a picture"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "is a picture"),
        (b"%PDF-1.7\n", "is a PDF document"),
        (b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml", "is a document of an office program"),
        (b"un gato\ta cat\run sol\ta sun\r", "end with a carriage return alone"),
    ],
)
def test_a_file_without_lines_of_text_is_named(tmp_path, content, reason):
    (tmp_path / "a.tsv").write_bytes(content)
    answer = check([Tsv(tmp_path / "a.tsv")])
    assert reason in str(answer.findings.of("error")[0])


def test_commas_in_place_of_tabs_are_told(tmp_path):
    lines = findings_of(table(tmp_path, *LINES, "un gato,a cat"))
    kind = "fewer than 2 tab-separated columns, and commas or semicolons: export it with tabs"
    assert lines == {f"error: {kind}": [f"{tmp_path / 'a.tsv'}:31"]}


@pytest.mark.parametrize(
    ("line", "kind", "byte"),
    [
        ("sur de B&iacute;rmania\tx", remains.ENTITY, 9),
        ("x\tdon&#39;t", remains.ENTITY, 6),
        ("un ga@@ to\tx", remains.JOINER, 5),
        ("x\tfar @-@ off", remains.JOINER, 7),
        ("x\tfar \uffed- off", remains.JOINER, 7),
        ('x\t"He said ""no""."', remains.QUOTES, 3),
        ('"Dijo ""no""."\tx', remains.QUOTES, 1),
    ],
)
def test_what_tools_left_in_text_is_found_where_it_is(tmp_path, line, kind, byte):
    path = table(tmp_path, *LINES, line)
    assert findings_of(path)[f"warning: {kind}"] == [f"{path}:31:{byte}"]


@pytest.mark.parametrize("header", ["source\ttarget", "Spanish\tEnglish", "es\ten", '"src"\t"tgt"'])
def test_a_header_is_told(tmp_path, header):
    path = table(tmp_path, header, *LINES)
    assert findings_of(path)[f"warning: {remains.HEADER}"] == [f"{path}:1"]
    assert f"warning: {remains.HEADER}" not in findings_of(table(tmp_path, *LINES, header))


@pytest.mark.parametrize(
    "line",
    ["AT&T; R&D\ta & b;", "mail a@b.com\t@home @ 5 @-", '"Hola", dijo.\t"Hello," he said.',
     '"Hola."\t"Hello."', "Go.\tVa !", "1\t1", "# uno\t# one", "<b>\t<b>", "1\tWEBVTT"],
)  # fmt: skip
def test_ordinary_text_is_no_fault(tmp_path, line):
    assert findings_of(table(tmp_path, line, *LINES)) == {}


def test_a_file_that_cannot_be_read_has_no_counts(tmp_path):
    table_path, missing = table(tmp_path, *LINES), tmp_path / "nosuch.tsv"
    answer = check([Tsv(table_path), Tsv(missing)])
    assert [split.unread for split in answer.splits] == [False, True]
