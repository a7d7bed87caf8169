"""Word vectors from files of others: what is wanted is read, what is wrong is told with its line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from regard.errors import CheckpointError, DataError
from regard.translation.training.vectors import read_vectors

TEXT = b"4 3\ncat 1 2 3 \nNew York 9 9 9\nchat 0.5 -1e-3 4\n\xff\xfe 1 1 1\n"


@pytest.fixture
def write(tmp_path):
    def written(content: bytes, name: str = "words.vec"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return written


def test_wanted_words_and_no_others_are_kept(write):
    for content, name in ((TEXT, "words.vec"), (gzip.compress(TEXT), "words.vec.gz")):
        found = read_vectors(write(content, name), {"cat", "chat", "New", "dog"})
        assert (found.width, found.read, found.repeated) == (3, 4, 0)
        assert {word: vector.tolist() for word, vector in found.words.items()} == {
            "cat": [1, 2, 3],
            "chat": [0.5, np.float32(-1e-3), 4],
        }


def test_a_file_may_begin_with_a_vector_and_repeat_a_word(write):
    found = read_vectors(write(b"a 1 2\r\nb 3 4\r\na 5 6"), {"a", "b"})
    assert (found.width, found.read, found.repeated) == (2, 3, 1)
    assert found.words["a"].tolist() == [1, 2]


def test_the_first_line_may_be_long_or_begin_with_a_byte_order_mark(write):
    wide = b"a" + b" 0.123456" * 1000 + b"\nb" + b" 0.654321" * 1000 + b"\n"
    for content, name in ((wide, "words.vec"), (gzip.compress(wide), "words.vec.gz")):
        found = read_vectors(write(content, name), {"a", "b"})
        assert (found.width, found.read, len(found.words)) == (1000, 2, 2)
    for content in (b"2 1\na 3\nb 4\n", b"a 3\nb 4\n"):
        found = read_vectors(write(b"\xef\xbb\xbf" + content), {"a", "b"})
        assert (found.width, found.read, sorted(found.words)) == (1, 2, ["a", "b"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", r"words\.vec:1: expected the count of words"),
        (b"3\n", r"words\.vec:1: expected the count"),
        (b"9999999999 3\na 1 2 3\n", r"words\.vec:1: expected the count"),
        (b"1 99999\na 1\n", r"words\.vec:1: expected the count"),
        (b"0 3\n", r"words\.vec:1: expected the count"),
        (b"3 2\na 1 2\nb 1 2\n", "says 3 words, there are 2"),
        (b"1 2\na 1 2\nb 1 2\n", "says 1 words, there are 2"),
        (b"2 2\na 1 2\nb 1\n", r"words\.vec:3: expected a word and 2 numbers"),
        (b"2 2\na 1 2\n\n", r"words\.vec:3: expected a word and 2 numbers"),
        (b"a 1 2\nb 1 x\n", r"words\.vec:2: expected numbers after 'b'"),
        (b"a 1 2\nb 1 nan\n", r"words\.vec:2: a number that is not finite"),
        (b"a 1 1e39\n", r"words\.vec:1: a number that is not finite"),
        (b"1 2\n" + b"a" * (2**20 + 5), r"words\.vec:2: the line is longer"),
        (b"\xba\x16\x4f\x2f\x0c\x00", "a binary file"),
        (b"\x80\x04\x95", "a binary file"),
        (gzip.compress(TEXT, mtime=0)[:-9], "broken gzip data"),
        (gzip.compress(b"2 2\n" + b"0" * 2**26, mtime=0), "the line is longer"),
    ],
)
def test_what_is_no_such_file_is_told(write, content, told):
    with pytest.raises(DataError, match=told):
        read_vectors(write(content), {"a", "b", "cat", "chat"})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "missing.vec", {"a"})
    with pytest.raises(DataError, match="is a folder"):
        read_vectors(tmp_path, {"a"})


def tensors(text: str = "cat\ndog\ncat", **changes):
    made = {
        "words": np.frombuffer(text.encode(), np.uint8),
        "vectors": np.arange(6, dtype=np.float16).reshape(3, 2),
    }
    return {name: value for name, value in (made | changes).items() if value is not None}


def test_tensors_are_read_too(tmp_path):
    path = tmp_path / "words.safetensors"
    save_file(tensors(), path)
    found = read_vectors(path, {"cat", "cow"})
    assert (found.width, found.read, found.repeated) == (2, 3, 1)
    assert found.words["cat"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"words": None}, "expected two tensors"),
        ({"more": np.zeros(1)}, "expected two tensors"),
        ({"words": np.frombuffer(b"a\n\xff", np.uint8)}, "byte 3 of `words` is not UTF-8"),
        ({"words": np.zeros(3)}, "bytes of `words`"),
        ({"vectors": np.zeros((2, 2))}, "3 words and 2 vectors"),
        ({"vectors": np.zeros(3)}, "expected words x width"),
        ({"vectors": np.zeros((3, 2), np.int64)}, "floating-point"),
        ({"vectors": np.full((3, 2), np.nan)}, "vector 0: a number that is not finite"),
    ],
)
def test_tensors_that_are_no_vectors_of_words(tmp_path, changes, told):
    path = tmp_path / "words.safetensors"
    save_file(tensors(**changes), path)
    with pytest.raises(DataError, match=told):
        read_vectors(path, {"cat"})


def test_tensors_made_up_by_others(write):
    header = json.dumps(
        {"words": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 4]}}
    ).encode()
    for content in (
        b"",
        b"PK\x03\x04" + bytes(9),
        len(header).to_bytes(8, "little") + header + bytes(4),
    ):
        with pytest.raises((CheckpointError, DataError), match=r"words\.safetensors"):
            read_vectors(write(content, "words.safetensors"), {"cat"})
