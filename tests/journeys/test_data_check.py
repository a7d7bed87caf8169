"""`regard data check`: what a person reads before a training, and what a machine does."""

from __future__ import annotations

import json

import pytest
from tests.journeys.commands import check_refused, run


def parallel(folder, *names: str) -> list[str]:
    files = []
    for name in names:
        files += ["--source", folder / f"{name}.es", "--target", folder / f"{name}.en"]
    return files


def pairs(folder, name: str) -> list[tuple[str, ...]]:
    sides = ((folder / f"{name}.{side}").read_text(encoding="utf-8") for side in ("es", "en"))
    return list(zip(*(side.split("\n")[:-1] for side in sides), strict=True))


def test_splits_are_counted_measured_and_compared(corpus, trained, tmp_path):
    out = tmp_path / "lengths.png"
    result = run(
        "data", "check", *parallel(corpus, "train", "valid"), "--model", trained, "--out", out
    )
    assert result.code == 0, result
    assert result.err == ""
    assert "train.es and train.en 200 200 0 " in " ".join(result.out.split())
    assert "warning: pair that an earlier line equals" in result.out
    assert "pieces a word" in result.out
    assert result.lines[-1] == f"wrote {out}"
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_machine_reads_the_same_numbers(corpus):
    result = run("data", "check", *parallel(corpus, "train", "valid"), "--format", "json")
    document = json.loads(result.out)
    assert [split["pairs"] for split in document["splits"]] == [200, 20]
    train, valid = (pairs(corpus, name) for name in ("train", "valid"))
    assert document["overlaps"][0]["exact"]["pairs"] == sum(pair in train for pair in valid)
    assert document["splits"][0]["repeated"]["pairs"] == len(train) - len(set(train))
    assert document["errors"] == []
    assert document["vocabulary"] == {}


def test_errors_are_listed_and_end_with_code_1(tmp_path):
    (tmp_path / "bad.tsv").write_bytes("a\tb\nc\xe9\td\n".encode("latin-1") + b"alone\n")
    result = run("data", "check", "bad.tsv")
    assert result.code == 1
    assert "error: not UTF-8: bad.tsv:2:2" in result.lines
    assert "error: fewer than 2 tab-separated columns: bad.tsv:3" in result.lines
    assert "empty:" not in result.out  # what cannot be read is not said to be empty, too
    assert "Traceback" not in result.err
    (tmp_path / "text.fr").write_text("un\n", encoding="utf-8")
    for files in (["none.tsv"], ["--source", "none.en", "--target", "text.fr"]):
        none = run("data", "check", *files)
        assert none.code == 1
        assert len([line for line in none.lines if line.startswith("error:")]) == 1, none
    turned = run("data", "check", "bad.tsv", "--source-column", "5")
    assert "fewer than 6 tab-separated columns" in turned.out


def test_files_are_looked_for_among_the_corpora(tmp_path, monkeypatch):
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "corpora"))
    result = run("data", "check", "a.tsv")
    assert result.code == 0
    assert result.lines[-1] == "nothing to object to"


def test_names_lose_the_folder_they_share_and_nothing_else(tmp_path):
    for name in ("a/data/a.tsv", "a/other/b.tsv"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x\ty\n", encoding="utf-8")
    result = run("data", "check", "a/data/a.tsv", "a/other/b.tsv")
    assert result.lines[0].startswith("a/ ")
    assert [line.split()[0] for line in result.lines[1:3]] == ["data/a.tsv", "other/b.tsv"]
    assert "other/b.tsv in data/a.tsv" in result.out
    # One of them from the root on, as from REGARD_DATA, and the other from here.
    mixed = run("data", "check", tmp_path / "a/data/a.tsv", "a/other/b.tsv")
    assert mixed.code == 0, mixed
    assert mixed.lines[1].startswith(str(tmp_path / "a/data/a.tsv"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "FILES"),
        (["a.tsv", "--source", "a", "--target", "b"], "--source"),
        (["--source", "a"], "1 --source and 0 --target"),
        (["a.tsv", "--ratio", "1"], "--ratio 1"),
        (["a.tsv", "--out", "x.txt"], "x.txt"),
        (["a.tsv", "--model", "m", "--tokenizer", "t"], "--tokenizer"),
        (["a.tsv", "--target-column", "-1"], "--target-column -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, named):
    check_refused(run("data", "check", *arguments), named, code=2)


def test_the_real_corpora_share_nothing_between_splits(data_folder):
    folder = data_folder / "tatoeba-spa-eng"
    result = run("data", "check", folder / "valid.tsv", folder / "test.tsv", "--format", "json")
    document = json.loads(result.out)
    assert [split["pairs"] for split in document["splits"]] == [2000, 2000]
    (overlap,) = document["overlaps"]
    assert overlap["folded"] == {"pairs": 0, "sources": 0, "targets": 0}
    assert document["errors"] == []


def test_a_file_that_is_not_there_has_no_tables_of_zeros(tmp_path):
    missing = run("data", "check", "nosuch.tsv")
    assert (missing.code, missing.out) == (1, "error: nosuch.tsv: no such file\n")
    (tmp_path / "one.tsv").write_text("un gato\ta cat\n", encoding="utf-8")
    both_result = run("data", "check", "one.tsv", "nosuch.tsv", "--model", "es-en")
    assert both_result.code == 1
    assert [line for line in both_result.lines if "nosuch" in line] == [
        "error: nosuch.tsv: no such file"
    ]
    assert "one.tsv     1     1" in both_result.out
