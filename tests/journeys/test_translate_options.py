"""Every option of `regard translate` changes what comes out as it should, or is refused with a reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.journeys.commands import Bytes, check_refused, finish, run, run_apart, standing_in, start

from regard.cli import shipped
from regard.cli.main import main
from regard.cli.output.streams import LINES

SENTENCES = ["El gato ve el mar hoy.", "El niño come aquí.", "El sol busca la casa."]
TEXT = "".join(line + "\n" for line in SENTENCES)


def translate(model, *more: str, text: str = TEXT) -> list[str]:
    result = run("translate", "--model", model, *more, stdin=text.encode("utf-8"))
    assert result.code == 0, result
    return result.lines


def objects(lines: list[str]) -> list[dict[str, object]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_a_line_of_json_for_each_line(trained):
    lines = translate(trained, "--format", "json", text=TEXT + "\n\u2028\n")
    plain = translate(trained, text=TEXT + "\n\u2028\n")
    entries = objects(lines)
    assert [one["translation"] for one in entries] == plain
    assert [one["source"] for one in entries] == [
        *SENTENCES,
        "",
        " ",
    ]  # separators of lines are spaces
    for entry in entries[:3]:
        assert entry["score"] < 0
        assert entry["log_probability"] < 0
        assert " ".join(word["word"] for word in entry["words"]) == entry["translation"]
        assert "nbest" not in entry
        assert "alignment" not in entry


def test_json_holds_the_n_best_and_their_alignments(trained):
    (entry,) = objects(
        translate(trained, "--format", "json", "--nbest", "3", "--alignment", SENTENCES[0])
    )
    assert len(entry["nbest"]) == 3
    assert entry["nbest"][0].items() <= entry.items()
    scores = [one["score"] for one in entry["nbest"]]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in entry["nbest"]:
        links = [link.split("-") for link in hypothesis["alignment"].split()]
        assert [int(target) for _, target in links] == list(range(len(hypothesis["words"])))
        assert all(int(source) < 6 for source, _ in links)


def test_alignments_and_confidences_go_beside_and_into_the_text(trained):
    plain = translate(trained)
    for text, line in zip(plain, translate(trained, "--alignment"), strict=True):
        same, _, links = line.partition("\t")
        assert same == text
        assert len(links.split()) == len(text.split())
    for text, line in zip(plain, translate(trained, "--confidence"), strict=True):
        words = [word.rpartition("|") for word in line.split()]
        assert [word for word, _, _ in words] == text.split()
        assert all(0 <= float(confidence) <= 1 for _, _, confidence in words)


def test_every_translation_begins_with_the_prefix(trained):
    begins = re.compile(r"The house(?![\w'-])")
    free = translate(trained)
    bound = translate(trained, "--prefix", "The house")
    assert all(begins.match(line) for line in bound)
    assert bound != free
    translations = translate(trained, "--prefix", "The house", "--sample", "--seed", "5")
    assert all(begins.match(line) for line in translations)
    assert translations != bound


def test_each_line_may_have_a_prefix_of_its_own(trained):
    text = f"{SENTENCES[0]}\tA dog\n{SENTENCES[1]}\n{SENTENCES[2]}\t\n"
    lines = translate(trained, "--prefixes", text=text)
    assert lines[0].startswith("A dog")
    assert lines[1:] == translate(trained)[1:]
    (argument,) = translate(trained, "--prefixes", f"{SENTENCES[0]}\tA dog")
    assert argument == lines[0]


def test_penalties_are_part_of_the_score(trained):
    def scored(*more: str) -> tuple[float, float]:
        (entry,) = objects(translate(*more, "--format", "json", "--beam", "4", SENTENCES[0]))
        return entry["score"], entry["log_probability"]

    score, log_probability = scored(trained, "--length-penalty", "0")
    assert score == pytest.approx(log_probability)
    score, log_probability = scored(trained, "--length-penalty", "2")
    assert log_probability < score < 0
    if "es-en" in shipped.models():  # a model that has learnt where to look leaves words unread
        score, log_probability = scored(
            "es-en", "--length-penalty", "0", "--coverage-penalty", "0.5"
        )
        assert score < log_probability


@pytest.mark.parametrize("more", [(), ("--paragraphs",), ("--format", "json")])
def test_terms_come_out_as_they_are_listed(more, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("gato*\tféline bleu\ngato negro\tPANTHER\nel sol\t=\nbusc*\tqwx\n", "utf-8")
    text = "El gato negro ve el mar. Los gatos comen.\nEl sol busca la casa.\n"
    options = ("--model", "es-en-tiny", "--glossary", terms, *more)
    result = run("translate", *options, stdin=text.encode())
    assert result.code == 0
    texts = result.lines
    if more == ("--format", "json"):
        answers = objects(result.lines)
        texts = [str(answer["translation"]) for answer in answers]
        assert answers[0]["terms"] == {"gato negro": "PANTHER", "gatos": "féline bleu"}
        assert answers[1]["terms"] == {"El sol": "El sol", "busca": "qwx"}
        assert answers[0]["doubts"][-1] == "overlapping terms"
    for number, term in enumerate(["PANTHER", "féline bleu", "El sol", "qwx"]):
        assert texts[number // 2].count(term) == 1
    assert "1 term in 1 of" in result.err
    assert "(gato*): longer ones that overlap were placed" in result.err


def test_a_broken_glossary_is_refused_and_writes_nothing(tmp_path):
    terms, out = tmp_path / "terms.tsv", tmp_path / "out.txt"
    out.write_text("old")
    terms.write_text("gato\tcat\ngato\tfeline\n")
    options = ("--model", "es-en-tiny", "--glossary", terms, "--output", out)
    check_refused(run("translate", *options, "El gato"), f"{terms}:2", f"{terms}:1")
    for place, reason in ((tmp_path / "none.tsv", "no such file"), (tmp_path, "is a folder")):
        options = ("--model", "es-en-tiny", "--glossary", place, "--output", out)
        check_refused(run("translate", *options, "El gato"), f"{place}: {reason}")
    assert out.read_text() == "old"


def test_batches_of_any_size_say_the_same(trained):
    plain = translate(trained)
    for tokens in ("1", "40", "100000"):
        assert translate(trained, "--batch-tokens", tokens) == plain


def test_several_models_are_asked_together(corpus, trained, tmp_path):
    def trained_anew(name: str, *changes: str) -> Path:
        sets = [part for each in changes for part in ("--set", each)]
        result = run("train", corpus / "tiny.toml", "--run", tmp_path / name, *sets)
        assert result.code == 0, result
        return tmp_path / name

    second = trained_anew("second", "training.max_steps=2", "seed=9")
    both_translations = translate(trained, "--model", str(second), "--scores")
    assert both_translations != translate(trained, "--scores")
    assert both_translations != translate(second, "--scores")
    assert translate(trained, "--model", str(trained)) == translate(trained)

    models = ["--model", trained, "--model", second]
    pair = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    scored = run("evaluate", *models, *pair, "--out", "together")
    assert "; 2 models, beam " in scored.lines[0], scored
    sentences = (corpus / "valid.es").read_bytes()
    together = run("translate", *models, stdin=sentences)
    assert (tmp_path / "together").read_text(encoding="utf-8") == together.out
    assert together.out != run("translate", "--model", trained, stdin=sentences).out
    refused = run("evaluate", *models, "--alignments", "gold.jsonl")
    check_refused(refused, "--alignments takes one model", code=2)

    third = trained_anew("third", "training.max_steps=1", "tokenizer.vocabulary_size=300")
    refused = run("translate", "--model", trained, "--model", third, "El sol")
    check_refused(refused, third, "vocabulary", trained)


def test_paragraphs_are_laid_out_as_they_were(trained):
    without_options, two, three = (translate(trained, sentence)[0] for sentence in SENTENCES)
    text = f"{SENTENCES[0]}  {SENTENCES[1]}\n\n\n- {SENTENCES[2]}\n"
    wrapped = text.replace("ve el mar", "ve\nel mar")
    for source in (text, wrapped):
        result = run("translate", "--model", trained, "--paragraphs", stdin=source.encode())
        assert (result.code, result.out) == (0, f"{without_options}  {two}\n\n\n- {three}\n")
    (argument,) = translate(trained, "--paragraphs", f"{SENTENCES[0]} {SENTENCES[1]}")
    assert argument == f"{without_options} {two}"
    line = f"{SENTENCES[0]} {SENTENCES[1]}\n"
    assert translate(trained, text=line) == [argument]
    assert translate(trained, "--whole-lines", text=line) != [argument]


def test_a_sentence_of_a_paragraph_that_is_cut_is_counted(trained):
    text = f"El sol. Al {'mar ' * 3000}.\n"
    result = run(
        "translate", "--model", trained, "--beam", "1", "--paragraphs", stdin=text.encode()
    )
    assert result.code == 0
    assert "1 of 2 sentences were longer than 512 pieces" in result.err


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--format", "xml"], ["--format", "xml", "json"]),
        (["--prefix", "a", "--prefixes"], ["--prefixes and --prefix"]),
        (["--look", "--format", "json"], ["--look and --format json"]),
        (["--look", "--model", "es-en"], ["--look and several models"]),
        (["--paragraphs", "--nbest", "2"], ["--paragraphs and --nbest"]),
        (["--paragraphs", "--format", "json"], ["--paragraphs and --format json"]),
        (["--glossary", "terms.tsv", "--prefix", "a"], ["--glossary and --prefix"]),
        (["--paragraphs", "--prefix", "a"], ["--paragraphs and --prefix"]),
        (["--coverage-penalty", "-1"], ["coverage_penalty -1"]),
        (["--coverage-penalty", "1", "--beam", "1"], ["beam of 2 or more"]),
        (["--coverage-penalty", "1", "--sample"], ["beam search"]),
        (["--batch-tokens", "0"], ["--batch-tokens 0"]),
        (["--batch-tokens", "1e6"], ["--batch-tokens"]),
        (["--prefix", "word " * 600], ["prefix 'word", "at most 512"]),
    ],
)
def test_what_does_not_go_together_is_refused(wrong, named, trained):
    check_refused(run("translate", "--model", trained, *wrong, "El gato"), *named, code=2)


def test_a_stream_is_answered_before_it_is_read_to_its_end(trained, monkeypatch):
    """Lines read and not yet answered are never more than one group of them."""
    lines, read, lead = 3 * LINES + 7, 0, 0
    out = Bytes()

    def readline(limit: int) -> bytes:
        nonlocal read, lead
        lead = max(lead, read - out.getvalue().count(b"\n"))
        read += read < lines
        return b"sol %d\n" % read if read < lines else b""

    with standing_in(b"", out, Bytes()):
        monkeypatch.setattr(
            sys, "stdin", SimpleNamespace(
                closed=False, buffer=SimpleNamespace(readline=readline, isatty=lambda: False)
            )
        )  # fmt: skip
        code = main(["translate", "--model", str(trained), "--beam", "1"])
    assert code == 0
    assert out.getvalue().count(b"\n") == lines - 1
    assert LINES - 1 <= lead <= LINES


def test_memory_does_not_grow_with_the_input(trained):
    def growth(lines: int) -> int:
        text = "".join(f"El gato {number}\n" for number in range(lines))
        result = run_apart("translate", "--model", trained, "--beam", "1", stdin=text.encode())
        assert len(result.lines) == lines
        return result.growth

    baseline = growth(LINES)
    assert growth(4 * LINES) < baseline + 8 * 2**20


def test_whoever_reads_only_the_first_line_hears_of_no_error(trained):
    translating = start(
        "translate", "--model", trained, "--beam", "1", stdin=subprocess.PIPE, bufsize=0
    )
    assert translating.stdin is not None
    assert translating.stdout is not None
    text = b"El sol\n" * (4 * LINES)
    translating.stdin.write(text)
    assert translating.stdout.readline() != b""
    translating.stdout.close()
    translating.stdin.close()
    translating.stdout = translating.stdin = None
    result = finish(translating)
    assert (result.code, result.err) == (141, "")


def test_links_are_those_that_align_reads():
    text = "El gato negro duerme."
    translation, links = run("translate", "--alignment", text).lines[0].split("\t")
    read = run("align", "--text", text, translation)
    assert sorted(links.split()) == sorted(read.out.split()) == ["0-0", "1-2", "2-1", "3-3"]
