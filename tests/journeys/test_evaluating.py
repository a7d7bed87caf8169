"""Scores of every line of a test set, with signatures."""

from __future__ import annotations

import resource

import pytest
from tests.journeys.commands import check_refused, leftovers, run


def test_scores_come_with_signatures(trained, corpus, tmp_path):
    out = tmp_path / "out.txt"
    files = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    result = run("evaluate", "--model", trained, *files, "--beam", "1", "--out", out)
    assert result.code == 0, result
    first, bleu, chrf, ter, exact = result.lines
    assert first == "20 sentence pairs, 0 with an empty side; beam 1"
    assert bleu.startswith("BLEU ")
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in bleu
    assert chrf.startswith("chrF ")
    assert ter.startswith("TER ")
    assert exact.startswith("exact match ")
    source = (corpus / "valid.es").read_bytes()
    translated = run("translate", "--model", trained, "--beam", "1", stdin=source)
    assert out.read_text(encoding="utf-8") == translated.out


def test_a_table_of_columns_is_read_as_in_the_training_or_as_told(trained, corpus, tmp_path):
    pairs = [
        (corpus / f"valid.{each}").read_text(encoding="utf-8").split("\n")[:-1]
        for each in ("es", "en")
    ]
    table = tmp_path / "test.tsv"
    rows = [f"{target}\tx\t{source}\n" for source, target in zip(*pairs, strict=True)]
    table.write_text("".join(rows), encoding="utf-8", newline="\n")
    columns = ["--source-column", "2", "--target-column", "0"]
    told = run("evaluate", "--model", trained, "--tsv", table, *columns)
    files = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    assert told.out == run("evaluate", "--model", trained, *files).out
    wrong = run("evaluate", "--model", trained, "--tsv", table, "--source-column", "9")
    check_refused(wrong, f"{table}:1", "10 tab-separated columns")


def test_an_empty_line_counts(trained, tmp_path):
    (tmp_path / "a").write_text("El gato\n\nEl sol\n", encoding="utf-8")
    (tmp_path / "b").write_text("The cat\nThe dog\n\n", encoding="utf-8")
    result = run("evaluate", "--model", trained, "--source", "a", "--target", "b", "--out", "c")
    assert result.lines[0] == "3 sentence pairs, 2 with an empty side; beam 5"
    assert (tmp_path / "c").read_text(encoding="utf-8").split("\n")[1] == ""


def test_a_generated_task_is_evaluated_on_what_it_held_back(tmp_path):
    small = ["training.max_steps=2", "data.generated.train=100", "data.generated.valid=10"]
    sets = [part for each in [*small, "data.generated.test=30"] for part in ("--set", each)]
    trained = run("train", "reverse", "--run", "r", *sets)
    assert trained.code == 0, trained
    assert "regard evaluate --model r --generated" in trained.out
    result = run("evaluate", "--model", "r", "--generated")
    assert result.lines[0] == "30 sentence pairs, 0 with an empty side; beam 1"


def test_files_and_generated_data_are_told_apart(trained, corpus):
    check_refused(run("evaluate", "--model", trained), "--source", code=2)
    check_refused(run("evaluate", "--model", trained, "--source", "a"), "--target", code=2)
    check_refused(run("evaluate", "--model", trained, "--generated"), "--generated", code=2)


@pytest.mark.parametrize("out", ["nowhere/x.txt", "folder"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(out, tmp_path):
    (tmp_path / "folder").mkdir()
    result = run("evaluate", "--model", "no-such", "--tsv", "none.tsv", "--out", out)
    check_refused(result, out)  # not the model, not the table
    assert leftovers(tmp_path) == []


def test_a_full_disk_keeps_the_translations_there_are(trained, corpus, tmp_path):
    out = tmp_path / "out.txt"
    out.write_text("older\n", encoding="utf-8")
    command = ["evaluate", "--model", trained, "--beam", "1", "--out", out]
    files = ["--source", corpus / "train.es", "--target", corpus / "train.en"]
    check_refused(run(*command, *files, limits={resource.RLIMIT_FSIZE: 1000}), out, "too large")
    assert out.read_text(encoding="utf-8") == "older\n"
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_is_found_in_the_folder_of_corpora(trained, corpus, monkeypatch):
    here = run(
        "evaluate",
        "--model",
        trained,
        "--source",
        corpus / "valid.es",
        "--target",
        corpus / "valid.en",
    )
    monkeypatch.setenv("REGARD_DATA", str(corpus))
    there = run("evaluate", "--model", trained, "--source", "valid.es", "--target", "valid.en")
    assert (there.code, there.out) == (0, here.out)
