"""`regard data split`: one corpus, three files, all of them or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, leftovers, run

from regard.translation.text.corpora import Tsv, read_lines, read_pairs

HELD = ("--valid", "10", "--test", "20")


@pytest.fixture
def table(corpus, tmp_path) -> Path:
    """The corpus as a table, target first, with an empty side and white space."""
    columns = [list(read_lines(corpus / f"train.{language}")) for language in ("en", "es")]
    rows = [f"{target} \tx\t{source}\n" for target, source in zip(*columns, strict=True)]
    path = tmp_path / "corpus.tsv"
    path.write_text("".join([*rows, "\tx\tnada\n", rows[0]]), encoding="utf-8")
    return path


def test_a_table_becomes_three_that_share_nothing(table):
    columns = ("--source-column", "2", "--target-column", "0")
    result = run("data", "split", table, *columns, "--out", "parts", *HELD)
    assert result.code == 0, result
    assert sorted(path.name for path in Path("parts").iterdir()) == [
        "test.tsv",
        "train.tsv",
        "valid.tsv",
    ]
    pairs = {
        name: read_pairs(Tsv(Path("parts") / f"{name}.tsv")).pairs
        for name in ("train", "valid", "test")
    }
    assert (len(pairs["valid"]), len(pairs["test"])) == (10, 20)
    assert pairs["test"][0].source.startswith("El ")
    assert "1 with an empty side" in result.out
    checked = run("data", "check", *(f"parts/{name}.tsv" for name in pairs))
    assert "too: " not in checked.out
    assert "too (" not in checked.out
    second_result = run("data", "split", table, *columns, "--out", "again", *HELD)
    assert second_result.code == 0
    other_result = run("data", "split", table, *columns, "--out", "other", *HELD, "--seed", "2")
    assert other_result.code == 0
    for name in pairs:
        ours = Path("parts", f"{name}.tsv").read_bytes()
        assert ours == Path("again", f"{name}.tsv").read_bytes()
        assert ours != Path("other", f"{name}.tsv").read_bytes()


def test_sizes_of_a_small_corpus_are_in_proportion_and_a_note_says_so(tmp_path):
    corpus = tmp_path / "small.tsv"
    corpus.write_text("".join(f"uno {i}\tone {i}\n" for i in range(2_100)), encoding="utf-8")
    result = run("data", "split", corpus, "--out", "parts", "--test", "100")
    assert result.code == 0, result
    made_sizes = [
        len(list(read_lines(Path("parts", f"{name}.tsv")))) for name in ("train", "valid")
    ]
    assert made_sizes == [1_790, 210]
    assert "note: valid has 210 pairs, a tenth of 2,100" in result.err
    assert "note: test" not in result.err
    sizes = ("--valid", "5", "--test", "5")
    assert "note" not in run("data", "split", corpus, "--out", "others", *sizes).err


def test_two_files_and_no_test_set(corpus):
    files = ("--source", corpus / "train.es", "--target", corpus / "train.en")
    result = run("data", "split", *files, "--out", "parts", "--valid", "5", "--test", "0")
    assert result.code == 0, result
    assert sorted(path.name for path in Path("parts").iterdir()) == ["train.tsv", "valid.tsv"]


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--valid", "-1"], "--valid -1", 2),
        (["--test", "5000"], "5000 to test with leave nothing of", 1),
        (["--out", "no/parts"], "there is no folder no", 1),
        (["--out", "."], "is there already", 1),
        (["--seed", "-1"], "--seed -1", 2),
        (["--source", "a"], "give FILES, or --source and --target", 2),
        (["--target-column", "9"], "corpus.tsv:1: expected at least 10", 1),
    ],
)
def test_what_cannot_be_done_leaves_nothing(table, tmp_path, options, message, code):
    out = [] if "--out" in options else ["--out", "parts"]
    check_refused(run("data", "split", table, *out, *options), message, code=code)
    assert not Path("parts").exists()
    assert not leftovers(tmp_path)


def test_columns_of_two_files_are_refused(corpus, tmp_path):
    files = ("--source", corpus / "train.es", "--target", corpus / "train.en")
    result = run("data", "split", *files, "--out", "parts", "--target-column", "0")
    check_refused(result, "--target-column 0: is for FILES: two files have no columns", code=2)
    checked = run("data", "check", *files, "--source-column", "1")
    check_refused(checked, "--source-column 1: is for FILES", code=2)
