"""Glossaries: which words are terms, and files that are none."""

import gzip

import pytest

from regard.errors import DataError
from regard.translation import Glossary


def matched(glossary, line):
    return [(line[start:stop], term.target) for start, stop, term in glossary.matches(line)[0]]


@pytest.mark.parametrize(
    ("terms", "line", "expected"),
    [
        ({"red": "net"}, "La red. RED Red redes redil", [("red", "net"), ("RED", "net"), ("Red", "net")]),
        ({"Red": "Net"}, "red Red RED", [("Red", "Net")]),
        ({"red*": "net"}, "redes", [("redes", "net")]),
        ({"red* social*": "network"}, "redes  sociales", [("redes  sociales", "network")]),
        ({"red": "1", "red*": "2", "rede*": "3", "Redes": "4"}, "red reda redes Redes",
         [("red", "1"), ("reda", "2"), ("redes", "3"), ("Redes", "4")]),
        ({"gat\u00f3": "x"}, "gato\u0301", [("gato\u0301", "x")]),
        ({"gato\u0301": "x"}, "gat\u00f3", [("gat\u00f3", "x")]),
        ({"a b": "1", "b c": "2"}, "a b c", [("a b", "1")]),
        ({"a b": "1", "b c d": "2"}, "a b c d", [("b c d", "2")]),
    ],
)  # fmt: skip
def test_matches(terms, line, expected):
    assert matched(Glossary(terms), line) == expected


def test_overlapping_terms_are_named():
    assert Glossary({"a b": "1", "b c d": "2"}).matches("a b c d")[1] == ["a b"]


def test_files(tmp_path):
    text = "\ufeffred\tnet\r\n\r\nRegard\t=\r\nred\tnet\r\n"
    (tmp_path / "terms.tsv").write_bytes(text.encode())
    (tmp_path / "terms.tsv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("terms.tsv", "terms.tsv.gz"):
        glossary = Glossary.open(tmp_path / name)
        assert [term[:2] for term in glossary.terms] == [("red", "net"), ("Regard", "=")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("red\tnet\nRED\tweb\nred\tweb\n", ":3: 'red' is 'web' here and 'net' in {0}:1: delete one of them"),
        ("red\n", ":1: 1 columns, expected 2: a source, a tab and a target"),
        ("red\tnet\tweb\n", ":1: 3 columns, expected 2"),
        ("\tnet\n", ":1: the source is empty: write a word, or delete the term"),
        ("red\t \n", ":1: the target is empty"),
        ("r*ed\tnet\n", ":1: 'r*ed': a * stands at the end of a word only"),
        ("*\tnet\n", ":1: '*': a * stands at the end of a word only"),
        ("red **\tnet\n", ":1: 'red **': a * stands at the end of a word only"),
        ("red **\tnet\n", "a * stands at the end of a word only"),
        ("a" * 201 + "\tnet\n", ":1: the source has more than 200 characters"),
        ("", ": no terms: write a source, a tab and a target on a line"),
        ("red\tnet\ngato\t\udcff\n", ":2: byte 6 of the line (0xff) is not UTF-8"),
        ("red\tnet\0".encode("utf-16").decode("utf-8", "surrogateescape"), "UTF-16"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path, text, fault):
    path = tmp_path / "terms.tsv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError) as error:
        Glossary.open(path)
    assert fault.format(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_too_many_terms():
    with pytest.raises(DataError, match="terms:100001: more than 100,000 terms"):
        Glossary({f"w{number}": "x" for number in range(100_001)}, "terms")
