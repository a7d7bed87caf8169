"""A shortlist made and used from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.journeys.commands import check_refused, run

from regard.translation.runs import Run


def made(model: Path, *options: object):
    result = run("shortlist", "--model", model, *options)
    assert result.code == 0, result
    return result


def test_from_what_the_model_learnt_from(model, corpus, tmp_path):
    learnt = tmp_path / "learnt"  # what it was chosen by is not needed
    learnt.mkdir()
    for name in ("train.es", "train.en"):
        shutil.copy(corpus / name, learnt)
    result = made(model, "--data", learnt)
    assert "learnt from 198 sentence pairs, left out 0; of 2 others" in result.out
    assert "100.0% of the target's word pieces are on their sentence's list" in result.out
    assert f"wrote {model / 'shortlist.safetensors'}" in result.out
    sentences = (corpus / "valid.es").read_bytes()
    whole = run("translate", "--model", model, stdin=sentences)
    short = run("translate", "--model", model, "--shortlist", stdin=sentences)
    assert short.code == 0, short
    assert len(short.lines) == len(whole.lines) == 20
    made(model, "--data", corpus, "--each", "1", "--always", "1")
    poor = run("translate", "--model", model, "--shortlist", stdin=sentences)
    assert poor.lines != short.lines
    # What is exported has it, too.
    copy = Run.open(model)
    copy.export(model.parent / "copy", "float32")
    again = run("translate", "--model", model.parent / "copy", "--shortlist", stdin=sentences)
    assert again.lines == poor.lines


def test_from_other_files(model, corpus):
    text = "--source", corpus / "valid.es", "--target", corpus / "valid.en"
    result = made(model, *text, "--each", "3", "--always", "1")
    assert "learnt from 19 sentence pairs, left out 0; of 1 others" in result.out
    scored = run("evaluate", "--model", model, *text, "--shortlist")
    assert "beam 5, shortlist" in scored.out, scored


def test_the_bundled_model_writes_the_same_with_one():
    given = "El gato negro duerme.", "Hace frío.", "¿Todavía está en casa?"
    for options in ((), ("--beam", "1"), ("--quantization", "int8")):
        whole = run("translate", *options, *given)
        assert run("translate", "--shortlist", *options, *given).lines == whole.lines, options


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--each", "0"), "--each 0: use a whole number, 1 to 10,000"),
        (("--always", "-3"), "--always -3: use a whole number, 1 to 10,000"),
        (("--data", ".", "a.tsv"), "--data is for the model's training corpora"),
        (("--source", "a"), "1 --source and 0 --target"),
        (("--source-column", "7"), "--source-column and --target-column are for FILES"),
    ],
)
def test_options_that_make_no_sense_are_refused(model, arguments, expected):
    check_refused(run("shortlist", "--model", model, *arguments), expected, code=2)


def test_what_is_not_there_is_said(model, tmp_path):
    check_refused(run("shortlist", "--model", model, tmp_path / "no.tsv"), "no.tsv", code=1)
    check_refused(run("shortlist", "--model", model), "train.es: no such file in", code=1)
    none = run("translate", "--model", model, "--shortlist", "Hola.")
    check_refused(none, f"{model}: has no shortlist: `regard shortlist --model {model}`", code=1)
    assert not (model / "shortlist.safetensors").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(model, corpus):
    model.chmod(0o555)
    try:
        refused = run("shortlist", "--model", model, "--data", corpus, as_anybody=True)
    finally:
        model.chmod(0o755)
    check_refused(refused, "shortlist.safetensors: cannot be written: permission denied", code=1)


@pytest.mark.parametrize("prefix", [("--prefix", "The"), ("--prefixes",)], ids=" ".join)
def test_a_prefix_wants_all_words(prefix):
    refused = run("translate", "--shortlist", *prefix, "Hola.")
    check_refused(refused, "--shortlist and --prefix", code=2)


def test_scores_of_what_is_translated_already_take_none(tmp_path):
    (tmp_path / "a").write_text("x\n")
    given = "--hypotheses", tmp_path / "a", "--target", tmp_path / "a"
    check_refused(run("evaluate", *given, "--shortlist"), "--shortlist is for translating", code=2)
