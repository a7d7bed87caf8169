"""Scores of every line of a test set, with signatures."""

from __future__ import annotations

import json
import re
import resource

import pytest
from tests.journeys.commands import check_refused, leftovers, run


def test_scores_come_with_signatures(trained, corpus, tmp_path):
    out = tmp_path / "out.txt"
    files = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    result = run("evaluate", "--model", trained, *files, "--beam", "1", "--out", out)
    assert result.code == 0, result
    header, bleu, chrf, ter, exact = result.lines
    assert header == "20 sentence pairs, 0 with an empty side; beam 1, sentence by sentence"
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
    result = run("evaluate", "--model", trained, "--tsv", table, *columns)
    files = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    assert result.out == run("evaluate", "--model", trained, *files).out
    wrong = run("evaluate", "--model", trained, "--tsv", table, "--source-column", "9")
    check_refused(wrong, f"{table}:1", "10 tab-separated columns")


def test_a_test_set_is_translated_as_it_would_be_without_references(trained, corpus, tmp_path):
    pair = "--source", corpus / "valid.es", "--target", corpus / "valid.en"
    options = ["--beam", "2", "--length-penalty", "2.5", "--coverage-penalty", "0.5"]
    result = run("evaluate", "--model", trained, *pair, *options, "--out", "scored")
    assert "beam 2, length penalty 2.5, coverage penalty 0.5" in result.lines[0], result
    sentences = (corpus / "valid.es").read_bytes()
    alone = run("translate", "--model", trained, *options, stdin=sentences)
    assert (tmp_path / "scored").read_text(encoding="utf-8") == alone.out
    small = run("evaluate", "--model", trained, *pair, "--batch-tokens", "1")
    assert small.code == 0, small
    refused = run("evaluate", "--hypotheses", "x", *pair, "--length-penalty", "0")
    check_refused(refused, "--length-penalty is for translating", code=2)
    refused = run("evaluate", "--model", trained, *pair, "--length-penalty", "-1")
    check_refused(refused, "length", code=2)


def test_an_empty_line_counts(trained, tmp_path):
    (tmp_path / "a").write_text("El gato\n\nEl sol\n", encoding="utf-8")
    (tmp_path / "b").write_text("The cat\nThe dog\n\n", encoding="utf-8")
    result = run("evaluate", "--model", trained, "--source", "a", "--target", "b", "--out", "c")
    assert result.lines[0] == "3 sentence pairs, 2 with an empty side; beam 5, sentence by sentence"
    assert (tmp_path / "c").read_text(encoding="utf-8").split("\n")[1] == ""


def test_a_generated_task_is_evaluated_on_what_it_held_back(tmp_path):
    small = ["training.max_steps=2", "data.generated.train=100", "data.generated.valid=10"]
    sets = [part for each in [*small, "data.generated.test=30"] for part in ("--set", each)]
    trained = run("train", "reverse", "--run", "r", *sets)
    assert trained.code == 0, trained
    assert "regard evaluate --model r --generated" in trained.out
    result = run("evaluate", "--model", "r", "--generated")
    assert result.lines[0] == "30 sentence pairs, 0 with an empty side; beam 1, whole lines"


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


def test_a_full_disk_keeps_the_translations_there_are(trained, tmp_path):
    out = tmp_path / "out.txt"
    out.write_text("older\n", encoding="utf-8")
    command = ["evaluate", "--model", trained, "--beam", "1", "--out", out]
    (tmp_path / "test.tsv").write_text("El gato\tThe cat\n" + "\n" * 3000, encoding="utf-8")
    full = {resource.RLIMIT_FSIZE: 2000}  # files may grow no further
    check_refused(run(*command, "--tsv", "test.tsv", limits=full), out, "File too large")
    assert out.read_text(encoding="utf-8") == "older\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "test.tsv"]


def test_a_file_is_found_in_the_folder_of_corpora(trained, corpus, monkeypatch):
    local_result = run(
        "evaluate",
        "--model",
        trained,
        "--source",
        corpus / "valid.es",
        "--target",
        corpus / "valid.en",
    )
    monkeypatch.setenv("REGARD_DATA", str(corpus))
    present_result = run(
        "evaluate", "--model", trained, "--source", "valid.es", "--target", "valid.en"
    )
    assert (present_result.code, present_result.out) == (0, local_result.out)


def test_translations_are_scored_without_a_model(trained, corpus, tmp_path):
    files = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    scored = run("evaluate", "--model", trained, *files, "--beam", "1", "--out", "out.txt")
    second_result = run("evaluate", "--hypotheses", "out.txt", "--target", corpus / "valid.en")
    assert second_result.code == 0, second_result
    assert second_result.lines[0] == "20 sentence pairs, 0 with an empty side; out.txt"
    assert second_result.lines[1:] == scored.lines[1:]
    document = json.loads(
        run(
            "evaluate", "--hypotheses", "out.txt", "--target", corpus / "valid.en",
            "--format", "json",
        ).out
    )  # fmt: skip
    assert f"BLEU {document['bleu']:.2f}" in second_result.lines[1]
    (tmp_path / "short").write_text("one\n", encoding="utf-8")
    short = run("evaluate", "--hypotheses", "short", "--target", corpus / "valid.en")
    check_refused(short, "short has 1 lines, the references 20")


def test_two_systems_are_compared_by_resampling(trained, corpus, tmp_path):
    reference = corpus / "valid.en"
    text = reference.read_text(encoding="utf-8")
    (tmp_path / "good").write_text(text, encoding="utf-8")
    (tmp_path / "bad").write_text("".join(line[:5] + "\n" for line in text.split("\n")[:-1]))
    command = ["evaluate", "--hypotheses", "good", "--target", reference, "--resamples", "100"]
    result = run(*command, "--baseline", "bad")
    assert result.code == 0, result
    assert "paired bootstrap, 100 resamples, seed 12345" in result.out
    bleu = next(line for line in result.lines if line.startswith("BLEU  "))
    assert bleu.endswith(" 0.0099")  # never below 1 / (resamples + 1)
    assert run(*command, "--baseline", "bad").out == result.out
    same = run(*command, "--baseline", "good")
    assert sum(line.endswith(" +0.00 1.0000") for line in same.lines) == 3, same
    other_document = json.loads(
        run(*command, "--baseline", "bad", "--seed", "7", "--format", "json").out
    )
    assert other_document["baseline"]["seed"] == 7
    assert other_document["baseline"]["differences"]["bleu"]["p_value"] == pytest.approx(1 / 101)
    # A model may be the baseline where there are sources.
    check_refused(run(*command, "--baseline", trained), "--source", code=2)
    model = run(*command, "--source", corpus / "valid.es", "--baseline", trained)
    assert model.code == 0, model
    check_refused(run(*command, "--baseline", "bad", "--seed", "0"), "seed 0", code=2)


def test_links_are_scored_against_sure_and_possible_ones(trained, tmp_path):
    gold = {"src": ["a", "b"], "tgt": ["x", "y"], "sure": [[0, 0]], "possible": [[1, 1]]}
    (tmp_path / "gold").write_text(f"{json.dumps(gold)}\n", encoding="utf-8")
    (tmp_path / "links").write_text("0-0 1-1 0-1\n", encoding="utf-8")
    result = run("evaluate", "--alignments", "gold", "--hypotheses", "links")
    # Three links, one sure and two possible, one sure link in the gold: 1 - (1 + 2) / (3 + 1).
    assert result.lines == [
        "1 sentences, 1 sure links, 2 sure or possible; 3 found",
        "AER 25.00  precision 66.67  recall 100.00  F1 80.00",
        "the diagonal: AER 0.00",
    ]
    flipped = run("evaluate", "--alignments", "gold", "--hypotheses", "links", "--flip")
    assert flipped.lines[1] == result.lines[1]
    ours = run("evaluate", "--alignments", "gold", "--model", trained, "--format", "json")
    assert ours.code == 0, ours
    assert json.loads(ours.out)["links"] == 2
    assert "nothing was chosen" in ours.err
    (tmp_path / "links").write_text("0-0\n0-0\n", encoding="utf-8")
    wrong = run("evaluate", "--alignments", "gold", "--hypotheses", "links")
    check_refused(wrong, "links has 2 lines, gold 1")
    check_refused(run("evaluate", "--alignments", "gold", "--tsv", "x"), "--alignments", code=2)
    check_refused(run("evaluate", "--hypotheses", "links", "--flip"), "--flip", code=2)


def test_several_references_are_scored_together(tmp_path):
    for name, lines in {
        "ours": "a cat\nthe dog\n",
        "one": "a cat\nno dog\n",
        "two": "x\nthe dog\n",
    }.items():
        (tmp_path / name).write_text(lines, encoding="utf-8")
    command = ["--hypotheses", "ours", "--target", "one", "--target", "two"]
    result = run("evaluate", *command)
    assert result.lines[0] == "2 sentence pairs, 2 references each, 0 with an empty side; ours"
    assert "nrefs:2|" in result.lines[1]
    assert result.lines[-1] == "exact match 100.00"
    second_result = run(
        "evaluate", *command[:-2], "--target", "two", "--target", "one", "--format", "json"
    )
    assert json.loads(second_result.out)["exact"] == 100
    (tmp_path / "three").write_text("x\n", encoding="utf-8")
    refused = run("evaluate", *command, "--target", "three")
    check_refused(refused, "three has 1 lines, the first --target 2")


def test_chinese_is_cut_as_asked_for_and_a_note_asks_for_it(tmp_path):
    (tmp_path / "zh").write_text("我喜欢猫。\n今天天气很好。\n", encoding="utf-8")
    same = ["evaluate", "--hypotheses", "zh", "--target", "zh"]
    plain = run(*same)
    assert "tok:13a" in plain.lines[1]
    assert plain.last_line == (
        "note: the references are Chinese: BLEU with the tokenizer 13a misjudges them: "
        "add --tokenize zh"
    )
    for options in (["--tokenize", "zh"], ["--to", "zh"]):
        result = run(*same, *options, "--baseline", "zh", "--resamples", "2")
        assert result.err == ""
        assert result.lines[1].startswith("BLEU 100.00  ")
        assert "|tok:zh|" in result.lines[1]
        assert re.search(r"BLEU +100.00 \(100.00", result.out)
    refused = run("evaluate", "--alignments", "zh", "--tokenize", "zh")
    check_refused(refused, "--alignments scores word links", code=2)


def test_links_that_count_from_one_get_a_note(tmp_path):
    lines = {"gold": "1-1 2-2\n" * 5, "ours": "0-0 1-1\n" * 5}
    for name, text in lines.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = run("evaluate", "--alignments", "gold", "--hypotheses", "ours")
    assert result.code == 0
    assert result.err == (
        "note: gold: no link has a word 0: links are read as counted from 0, these seem to count from 1\n"
    )


def test_empty_references_beside_others_are_told(tmp_path):
    for name, text in {
        "ours": "A cat\nA sun\n",
        "one": "A cat\nThe sun\n",
        "two": "The cat\n\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = ["--hypotheses", "ours", "--target", "one"]
    assert "note" not in run("evaluate", *files).err
    result = run("evaluate", *files, "--target", "two")
    assert result.code == 0
    assert "note: 1 of 2 sentences have an empty reference beside one with text" in result.err
