"""Corpora: every line where it stands in the file, every fault with its file and line."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib.util
import lzma
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.translation.text import corpora
from regard.translation.text.corpora import (
    Pair,
    Parallel,
    Tsv,
    decoded_lines,
    raw_lines,
    read_aligned,
    read_lines,
    read_pairs,
)


def file_of(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"x", ["x"]),
        (b"x\n", ["x"]),
        (b"x\n\n", ["x", ""]),
        (b"\xef\xbb\xbfx\ny\n", ["x", "y"]),
        (b"x\r\ny\r\n", ["x", "y"]),
        (b"x\ry\n", ["x\ry"]),
        (b"\n\n\n", ["", "", ""]),
    ],
)
def test_only_line_feeds_end_lines(tmp_path, content, lines):
    assert list(read_lines(file_of(tmp_path / "text", content))) == lines


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\0", "\r"])
def test_other_separators_stay_inside_their_line(tmp_path, inside):
    text = "".join(f"word{inside}word {n}\n" for n in range(5))
    source = file_of(tmp_path / "s", text.encode())
    target = file_of(tmp_path / "t", b"".join(b"line %d\n" % n for n in range(5)))
    pairs = read_pairs(Parallel(source, target)).pairs
    assert pairs == [Pair(f"word word {n}", f"line {n}") for n in range(5)]


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_lines_come_back_as_they_were_written(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("corpus") / "text"
    lines = ["first", *lines]  # a mark at the start of a file is none of the text
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    # A CR before LF belongs to the line's end.
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in lines]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"good\nbad \xff\n", ":2: byte 5 "),
        ("é\n".encode("latin-1"), ":1: byte 1 "),
        (b"good\n\xed\xa0\x80\n", ":2: byte 1 "),
        (b"good\n" * 200 + b"\xc3\x28\n", ":201: byte 1 "),
    ],
)
def test_what_is_not_utf8_is_told_with_file_line_and_byte(tmp_path, content, place):
    path = file_of(tmp_path / "file.de", content)
    with pytest.raises(DataError) as fault:
        list(read_lines(path))
    assert f"{path}{place}" in str(fault.value)


MARKED = {
    "utf-16": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32": b"",
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@pytest.mark.skipif(shutil.which("iconv") is None, reason="this system has no iconv")
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("encoding", MARKED)
@pytest.mark.parametrize("text", ["Das ist gut.\nJa.\n", "Łódź jest miastem.\n", "ab\n"])
def test_utf16_and_utf32_are_recognised_and_the_advice_converts_them(
    tmp_path, text, encoding, marked
):
    path = tmp_path / "file.de"
    path.write_bytes((MARKED[encoding] if marked else b"") + text.encode(encoding))
    with pytest.raises(DataError, match=r"file\.de:1: byte \d.*`iconv") as fault:
        list(read_lines(path))
    advice = str(fault.value).split("`")[1].split()
    converted = subprocess.run([*advice, str(path)], capture_output=True, check=True).stdout
    assert converted.decode("utf-8") == text


def test_binary_files_are_refused_as_such(tmp_path):
    for content in (b"\xba\x16\x4f\x2f\x0c\0\0\0\0\0", b"\x80\x04\x95\0"):
        with pytest.raises(DataError, match="corpus: a binary file"):
            list(read_lines(file_of(tmp_path / "corpus", content)))


@pytest.mark.parametrize(
    ("start", "subject"),
    [(b"PK\x03\x04\0\0", "zip archive"), (b"7z\xbc\xaf\x27\x1c", "7z archive")],
)
def test_packed_files_are_named_for_what_they_are(tmp_path, start, subject):
    with pytest.raises(DataError, match=f"corpus: is .*{subject}.*unpack it with"):
        list(read_lines(file_of(tmp_path / "corpus", start)))


def test_a_nul_among_letters_is_no_utf16(tmp_path):
    assert list(read_lines(file_of(tmp_path / "f", b"a\0b\n"))) == ["a\0b"]


def packers() -> dict[str, Callable[[bytes], bytes]]:
    known = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    for module in ("compression.zstd", "backports.zstd"):
        if importlib.util.find_spec(module.partition(".")[0]):
            known["zstd"] = importlib.import_module(module).compress
            break
    return known


PACKERS = packers()


@pytest.mark.parametrize("kind", PACKERS)
def test_packed_text_is_read_like_plain_text_whatever_its_name(tmp_path, kind):
    pack = PACKERS[kind]
    packed = file_of(tmp_path / "text.txt", pack(b"one\ntwo") + pack(b"\nthree\n"))
    assert list(read_lines(packed)) == ["one", "two", "three"]
    packed = file_of(tmp_path / "text.txt", pack(b""))
    assert list(read_lines(packed)) == []


def broken(content: bytes) -> dict[str, bytes]:
    flipped, middle = bytearray(content), bytearray(content)
    flipped[-6] ^= 1  # of gzip, the checksum
    middle[len(content) // 2] ^= 255
    return {
        "truncated": content[:-20],
        "header only": content[:6],
        "flipped": bytes(flipped),
        "middle": bytes(middle),
        "tail": content + b"garbage",
    }


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("fault", ["truncated", "header only", "flipped", "middle", "tail"])
def test_broken_packed_text_is_told_with_its_file(tmp_path, kind, fault):
    content = PACKERS[kind](b"".join(b"%d lines\n" % (number**2) for number in range(400)))
    path = file_of(tmp_path / "text.gz", broken(content)[fault])
    with pytest.raises(DataError, match=rf"text\.gz: broken {kind} data after line \d+"):
        list(read_lines(path))


@pytest.mark.parametrize("kind", PACKERS)
def test_packed_text_of_a_repeated_line_is_text_and_of_a_gigabyte_of_it_is_not(
    tmp_path, monkeypatch, kind
):
    line = b"the same line again\n"
    path = file_of(tmp_path / "text.gz", PACKERS[kind](line * 100_000))
    assert path.stat().st_size * 250 < 100_000 * len(line)
    monkeypatch.setattr(corpora, "_UNSUSPECTED", 2**22)
    assert sum(1 for _ in read_lines(path)) == 100_000
    monkeypatch.setattr(corpora, "_UNSUSPECTED", 2**20)
    too_small = rf"text\.gz: {kind} data that unpacks to more than 250 times"
    with pytest.raises(DataError, match=too_small):
        list(read_lines(path))
    honest = b"".join(b"%d lines\n" % number for number in range(30_000))
    path.write_bytes(PACKERS[kind](honest))
    assert sum(1 for _ in read_lines(path)) == 30_000


def test_xz_that_asks_for_much_memory_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**28}]
    path = file_of(tmp_path / "text.xz", lzma.compress(b"text\n", filters=filters))
    with pytest.raises(DataError, match="Memory usage limit"):
        list(read_lines(path))


def test_a_folder_a_missing_file_and_an_endless_line_are_refused(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(tmp_path / "missing"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_lines(Path("nul\0nul")))
    long = file_of(tmp_path / "long", b"short\n" + b"x" * 20)
    too_long = pytest.raises(DataError, match=r"long:2: the line is longer than 10 bytes")
    with long.open("rb") as file, too_long:
        list(raw_lines(file, str(long), 10))


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    path = file_of(tmp_path / "secret", b"x\n")
    path.chmod(0)
    if os.geteuid() == 0:  # root may read everything: what another user is told

        def denied(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"secret: cannot be read: Permission denied"):
        list(read_lines(path))


def test_a_named_pipe_is_read(tmp_path):
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert list(read_lines(pipe)) == ["one", "two"]
    writer.join()


def test_a_stream_that_fails_while_it_is_read():
    class Failing:
        def readline(self, _: int) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match="standard input: cannot be read: Input/output error"):
        list(decoded_lines(Failing(), "standard input"))


def test_unequal_counts_name_both_files_and_counts(tmp_path):
    source, target = file_of(tmp_path / "s.de", b"a\nb\nc\n"), file_of(tmp_path / "t.en", b"a\nb")
    with pytest.raises(DataError) as fault:
        read_pairs(Parallel(source, target))
    assert f"{source} has 3 lines and {target} has 2" in str(fault.value)


def test_pairs_with_an_empty_side_are_counted_and_the_others_keep_their_partners(tmp_path):
    source = file_of(tmp_path / "s", "a\n\n \u00a0\nd\ne\n".encode())
    target = file_of(tmp_path / "t", b"A\nB\nC\n\nE\n")
    pairs = read_pairs(Parallel(source, target))
    assert pairs.pairs == [Pair("a", "A"), Pair("e", "E")]
    assert pairs.skipped == 3
    assert read_aligned(Parallel(source, target))[1] == Pair("", "B")


def test_columns_are_chosen_by_number(tmp_path):
    path = file_of(tmp_path / "c.tsv", b"A\ta\tx\n\nB\tb\n")
    pairs = read_pairs(Tsv(path, source_column=1, target_column=0))
    assert pairs.pairs == [Pair("a", "A"), Pair("b", "B")]
    assert pairs.skipped == 1
    with pytest.raises(
        DataError, match=r"c\.tsv:3: expected at least 3 tab-separated columns, got 2"
    ):
        read_pairs(Tsv(path, source_column=2, target_column=0))
