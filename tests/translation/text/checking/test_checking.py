"""A corpus looked over: each fault is planted, and found at its place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.checking import remains
from regard.translation.text.checking.corpus import Report, check
from regard.translation.text.checking.counting import Lengths, Vocabulary
from regard.translation.text.checking.repetitions import Prints, folded
from regard.translation.text.corpora import Pair, Parallel, Tsv
from regard.translation.text.tokenizer import Tokenizer

PLAIN = [f"sentence {number}\tsatz {number}" for number in range(30)]


def table(folder: Path, *lines: str | bytes, name: str = "a.tsv") -> Tsv:
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / name).write_bytes(b"".join(line + b"\n" for line in raw))
    return Tsv(folder / name)


def findings_of(report: Report) -> dict[str, list[str]]:
    """Each finding's places, by its level and kind; files by their names alone."""
    return {
        f"{finding.level}: {finding.fault}": [place.rpartition("/")[2] for place in finding.where]
        for finding in report.findings.values()
    }


def test_a_good_corpus_has_counts_and_no_findings(tmp_path: Path):
    report = check([table(tmp_path, *PLAIN)])
    assert findings_of(report) == {}
    (split,) = report.as_object()["splits"]
    assert (split["lines"], split["pairs"], split["empty"]) == (30, 30, 0)
    assert split["lengths"]["source"]["words"]["total"] == 60
    assert split["lengths"]["target"]["characters"]["longest"] == len("satz 29")


@pytest.mark.parametrize(
    ("line", "kind", "byte"),
    [
        (b"a\xffb\tc", "error: not UTF-8", 2),
        ("ä\0\tc".encode(), f"warning: {remains.CONTROL}", 3),
        (b"a\r\tc", f"warning: {remains.CONTROL}", 2),
        ("a\u2028b\tc".encode(), f"warning: {remains.SEPARATOR}", 2),
        ("a\x85b\tc".encode(), f"warning: {remains.SEPARATOR}", 2),
        ("a \ufeff\tc".encode(), f"warning: {remains.BOM}", 3),
        ("a\u00adb\tc".encode(), f"warning: {remains.INVISIBLE}", 2),
        ("a\tc\u200f".encode(), f"warning: {remains.INVISIBLE}", 4),
        ("a\tc\ufffd".encode(), f"warning: {remains.REPLACED}", 4),
        ("a\tcafÃ©".encode(), f"warning: {remains.MOJIBAKE}", 6),
        ("a\tâ€œc".encode(), f"warning: {remains.MOJIBAKE}", 3),
        ("a\tcafe\u0301".encode(), f"warning: {remains.NOT_NFC}", 6),
    ],
)
def test_bytes_and_characters_are_found_where_they_are(tmp_path, line, kind, byte):
    lines = findings_of(check([table(tmp_path, *PLAIN, line)]))
    assert lines[kind] == [f"a.tsv:31:{byte}"]


def test_letters_that_are_meant_are_no_faults(tmp_path: Path):
    meant = "CAFÉ» « À l'œuvre » ¿Qué? Ñandú — “Straße” naïve\tÅngström £5 €6 ½ µ Čeština"
    assert findings_of(check([table(tmp_path, *PLAIN, meant)])) == {}


def test_composed_and_decomposed_together_are_told(tmp_path: Path):
    both_table = table(tmp_path, *PLAIN, "café\tx", "cafe\u0301\tx")
    assert "warning: composed (NFC) and decomposed (NFD) characters mixed" in findings_of(
        check([both_table])
    )
    one_table = table(tmp_path, *PLAIN, "cafe\u0301\tx")
    assert "warning: composed (NFC) and decomposed (NFD) characters mixed" not in findings_of(
        check([one_table])
    )


def test_a_mark_at_the_start_belongs_to_no_word(tmp_path: Path):
    report = check([table(tmp_path, b"\xef\xbb\xbfab\tc", "ab\tc")])
    assert findings_of(report) == {
        f"warning: {remains.BOM} at the start": ["a.tsv:1:1"],
        "warning: pair that an earlier line equals": ["a.tsv:2"],
    }


def test_empty_sides_missing_columns_and_copies_are_counted(tmp_path: Path):
    lines = ["\tc", "a\t ", "", "abc", "Aha\tOh", "Aha\tOh", "Aha\tAch"]
    report = check([table(tmp_path, *PLAIN, *lines)])
    assert findings_of(report) == {
        "warning: empty source": ["a.tsv:31"],
        "warning: empty target": ["a.tsv:32"],
        "warning: both sides empty": ["a.tsv:33"],
        "error: fewer than 2 tab-separated columns": ["a.tsv:34"],
        "warning: pair that an earlier line equals": ["a.tsv:36"],
    }
    (split,) = report.as_object()["splits"]
    assert (split["lines"], split["pairs"], split["empty"]) == (37, 33, 3)
    assert split["repeated"] == {"pairs": 1, "sources": 2, "targets": 1}


def test_outliers_are_measured_by_the_corpus_own_proportion(tmp_path: Path):
    double = [f"{'x' * 20}\t{'y' * 40}" for _ in range(50)]
    lines = [*double, f"{'x' * 40}\t{'y' * 20}", f"{'x' * 20}\t{'y' * 50}", "x\tyyyyyyyyyyyyy"]
    actual_lines = findings_of(check([table(tmp_path, *lines)]))
    assert actual_lines["warning: lengths more than 3 times out of proportion"] == ["a.tsv:51"]
    assert "warning: lengths more than 10 times out of proportion" not in findings_of(
        check([table(tmp_path, *lines)], ratio=10)
    )


def test_splits_that_share_sentences_are_told(tmp_path: Path):
    train = table(tmp_path, *PLAIN, "Hello!\tHallo!", name="train.tsv")
    test = table(tmp_path, "one\teins", "hello\thallo", "two\tsatz 3", PLAIN[4], name="test.tsv")
    report = check([train, test])
    (overlap,) = report.overlaps
    assert overlap.exact == {"pairs": 1, "sources": 1, "targets": 2}
    assert overlap.folded == {"pairs": 2, "sources": 2, "targets": 3}
    lines = findings_of(report)
    name = tmp_path / "train.tsv"
    assert lines[f"warning: pair that is in {name}, too"] == ["test.tsv:4"]
    assert lines[f"warning: target that is in {name}, too"] == ["test.tsv:3", "test.tsv:4"]
    assert lines[f"warning: pair that is in {name} but for case and punctuation"] == ["test.tsv:2"]


def test_two_files_must_have_the_same_lines(tmp_path: Path):
    (tmp_path / "a").write_bytes(gzip.compress(b"one\ntwo\nthree\n", mtime=0))
    (tmp_path / "b").write_bytes(b"eins\nzwei\n")
    report = check([Parallel(tmp_path / "a", tmp_path / "b")])
    assert list(findings_of(report)) == [
        f"error: {tmp_path / 'a'} has 3 lines and {tmp_path / 'b'} has 2"
    ]
    assert (report.splits[0].lines, report.splits[0].pairs) == (3, 2)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no usable sentence pairs in 0 lines"),
        (b"\n\n\n", "no usable sentence pairs in 3 lines"),
        ("a\tb\n".encode("utf-16"), "iconv"),
        (gzip.compress(b"a\tb\n" * 1000, mtime=0)[:-20], "broken gzip data"),
    ],
)
def test_a_file_that_is_no_corpus_is_an_error(tmp_path: Path, raw: bytes, message: str):
    (tmp_path / "a").write_bytes(raw)
    errors = check([Tsv(tmp_path / "a")]).findings.of("error")
    assert any(message in str(error) for error in errors)
    missing = check([Tsv(tmp_path / "none")]).findings.of("error")
    assert "no such file" in str(missing[0])


def test_many_places_are_counted_and_few_named(tmp_path: Path):
    report = check([table(tmp_path, *PLAIN, *["same\tgleich"] * 10)])
    (finding,) = report.findings.of("warning")
    assert finding.count == 9
    assert len(finding.where) == 3
    assert str(finding).endswith("a.tsv:34, ...")


def test_the_vocabulary_report_counts_what_the_tokenizer_lacks():
    tokenizer = Tokenizer.train(["ab ba abba baab"] * 20, vocabulary_size=280)
    vocabulary = Vocabulary(tokenizer)
    pieces = [vocabulary.add(text) for text in ("ab ba", "ñab ñ😀")]
    summary = vocabulary.summary()
    assert summary["pieces"] == sum(pieces) == sum(vocabulary.pieces.values())
    assert summary["byte_pieces"] == 2 + 2 + 4
    assert summary["unknown_characters"] == 3
    assert summary["most_unknown"] == [
        {"character": "ñ", "code": "U+00F1", "count": 2},
        {"character": "😀", "code": "U+1F600", "count": 1},
    ]
    assert summary["pieces_per_word"] == round(sum(pieces) / 4, 3)
    assert summary["unknown_pieces"] == 0
    assert 0 < summary["used"] < summary["usable"] <= len(tokenizer) - 4 - 256


def test_pieces_are_lengths_too(tmp_path: Path):
    tokenizer = Tokenizer.train([line.replace("\t", " ") for line in PLAIN], vocabulary_size=300)
    report = check([table(tmp_path, *PLAIN)], tokenizers=(tokenizer, tokenizer))
    lengths = report.splits[0].pieces["source"]
    assert lengths.summary()["total"] == report.vocabularies["source"].pieces.total()
    assert set(report.as_object()["vocabulary"]) == {"source", "target"}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.floats(0.01, 1))
def test_a_share_is_the_smallest_length_that_holds_it(values: list[int], share: float):
    lengths = Lengths(values)
    smallest = lengths.share(share)
    assert smallest in values
    assert sum(value <= smallest for value in values) >= share * len(values)
    assert sum(value < smallest for value in values) < share * len(values)
    assert lengths.share(1.0) == lengths.summary()["longest"] == max(values)


@given(st.lists(st.sampled_from("ab cd Ab. ef".split()), max_size=12))
def test_repetitions_are_those_of_the_lines_themselves(words: list[str]):
    prints = Prints()
    for number, word in enumerate(words, start=1):
        prints.add(number, Pair(word, "x"))
    repeated_lines = [n for n, word in enumerate(words, start=1) if word in words[: n - 1]]
    assert prints.repeated("sources") == prints.repeated("pairs") == repeated_lines
    second_prints = Prints()
    second_prints.add(1, Pair("ab", "y"))
    assert prints.shared(second_prints, "sources", fold=False) == [
        n for n, word in enumerate(words, start=1) if word == "ab"
    ]
    assert prints.shared(second_prints, "sources", fold=True) == [
        n for n, word in enumerate(words, start=1) if folded(word) == "ab"
    ]
    assert prints.shared(second_prints, "pairs", fold=True) == []
