"""`regard align --adapt`: links learnt from the text itself."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.journeys.commands import check_refused, run

import regard
from regard.errors import ConfigurationError
from regard.translation.formats.tmx import Tmx
from regard.translation.linking import learning

LINES = [f"la {n} {a} .\tthe {b} {m}." for n, m in
         (("casa", "house"), ("mesa", "table"), ("silla", "chair"), ("calle", "street"))
         for a, b in (("verde", "green"), ("roja", "red"), ("negra", "black"))]  # fmt: skip
LINKS = "0-0 1-2 2-1 3-3"


@pytest.fixture
def files(tmp_path):
    """Twelve pairs, the fourth of which is empty, as two files and as a table."""
    lines = [*LINES[:3], "\t", *LINES[3:]]
    for column, name in enumerate(("a", "b")):
        text = "".join(line.split("\t")[column] + "\n" for line in lines)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_each_line_has_its_links_learnt_from_the_text(files):
    result = run("align", "--adapt", "a", "b")
    assert result.code == 0, result
    assert result.lines == [*[LINKS] * 3, "", *[LINKS] * 9]
    assert run("align", "--adapt", "pairs.tsv").lines == result.lines
    assert run("align", "--adapt", "a", "b", "--seed", "3").lines == result.lines


def test_words_between_spaces_and_confidences_and_objects(files):
    tokenized = run("align", "--adapt", "a", "b", "--tokenized", "--format", "json")
    words = json.loads(tokenized.lines[0])
    assert words["target"] == ["the", "green", "house."]
    result = run("align", "--adapt", "a", "b", "--confidence")
    pairs = [item.split(":") for item in result.lines[0].split()]
    assert " ".join(link for link, _ in pairs) == LINKS
    assert all(0.44 <= float(probability) <= 1 for _, probability in pairs)
    split = json.loads(run("align", "--adapt", "a", "b", "--format", "json").lines[0])
    assert split["target"] == ["the", "green", "house", "."]
    assert len(split["weights"]) == 4


def test_characters_are_linked_where_no_spaces_are(files):
    animals = {"猫": "cat", "犬": "dog", "鳥": "bird", "魚": "fish"}
    verbs = {"探": "seeks", "愛": "loves", "知": "knows"}
    sentences = [(a, v, b) for a in animals for v in verbs for b in animals if a != b]
    for name, lines in (
        ("source", [f"{a}は{b}を{v}る。" for a, v, b in sentences]),
        ("target", [f"{animals[a]} {verbs[v]} {animals[b]}." for a, v, b in sentences]),
    ):
        (files / name).write_text("\n".join(lines), encoding="utf-8")
    result = run("align", "--adapt", "source", "target", "--characters")
    assert len(result.lines) == len(sentences)
    assert all({"0-0", "2-2", "4-1", "6-3"} <= {*line.split()} for line in result.lines)


def test_thai_is_linked_by_characters(files):
    animals = {"แมว": "cat", "ปลา": "fish", "นก": "bird", "งู": "snake"}
    verbs = {"กิน": "eats", "รัก": "loves", "หา": "seeks"}
    sentences = [(a, v, b) for a in animals for v in verbs for b in animals if a != b]
    for name, lines in (
        ("source", ["".join(sentence) for sentence in sentences]),
        ("target", [f"{animals[a]} {verbs[v]} {animals[b]}" for a, v, b in sentences]),
    ):
        (files / name).write_text("\n".join(lines), encoding="utf-8")
    options = ["source", "target", "--characters", "--format", "json"]
    words = [json.loads(line) for line in run("align", "--adapt", *options).lines]
    assert words[0]["source"] == ["แ", "ม", "ว", "กิ", "น", "ป", "ล", "า"]
    pairs = [(w["source"][s], w["target"][t]) for w in words for s, t in w["links"]]
    known = animals | verbs
    assert all(any(known[word] == target for word in known if s in word) for s, target in pairs)
    assert {t for w in words for t in w["target"]} == {t for _, t in pairs}


def test_one_sentence_is_aligned_with_what_was_kept(files):
    assert run("align", "--adapt", "a", "b", "--keep", "kept").code == 0
    text = ["--text", "la calle verde .", "the green street ."]
    assert run("align", "--adapt", *text, "--priors", "kept").lines == [LINKS]
    (pair,) = regard.align([(text[1], text[2])], adapt=True, priors=files / "kept")
    assert [pair.target[place] for place in pair.project(1, 3)] == ["green", "street"]
    with pytest.raises(ConfigurationError, match="priors: only with adapt=True"):
        regard.align([(text[1], text[2])], priors=files / "kept")
    check_refused(run("align", "--adapt", *text, "--priors", "a"), "a: cannot be read")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--adapt", "--layer", "1"], "--layer: of a model's attention"),
        (["--adapt", "--method", "argmax"], "--method: of a model's attention"),
        (["--adapt", "--threshold", "2"], "threshold 2: use a share"),
        (["--tokenized"], "--tokenized: only with --adapt"),
        (["--adapt", "--tokenized", "--characters"], "leave out --characters"),
        (["--adapt", "--priors", "kept", "--keep", "kept"], "leave out --priors"),
        (["--translator", "es-en"], "--translator: only with --adapt"),
        (["--adapt", "--format", "tmx"], "--format tmx: give --source-language"),
        (["--adapt", "--source-language", "es"], "--source-language is for TMX files"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_nothing_are_refused(files, options, reason):
    check_refused(run("align", "a", "b", *options), reason, code=2)


def test_a_file_to_keep_that_cannot_be_written_is_refused(files):
    check_refused(run("align", "--adapt", "a", "b", "--keep", "no/folder/kept"), "no/folder")


def test_sides_of_unequal_length_are_refused_with_both_counts(files):
    (files / "b").write_text("the house\n", encoding="utf-8")
    check_refused(run("align", "--adapt", "a", "b"), "a has 13 lines and b has 1")


def test_a_line_of_many_words_has_no_links_and_is_named(files):
    # 40 GB, if a table of their links were made.
    (files / "a").write_text("a " * 100_000 + "\nla casa\n", encoding="utf-8")
    (files / "b").write_text("b " * 100_000 + "\nthe house\n", encoding="utf-8")
    result = run("align", "--adapt", "a", "b")
    assert result.code == 0
    assert result.lines[0] == ""
    assert len(result.lines) == 2
    assert "pair 1: 100,000 and 100,000 words are too long" in result.err


@pytest.mark.parametrize("pair", [["a", "b"], ["b", "a"], ["pairs.tsv"]], ids=" ".join)
def test_what_is_kept_is_not_written_over_the_text(files, pair):
    text = (files / pair[0]).read_bytes()
    result = run("align", "--adapt", *pair, "--keep", f"./{pair[0]}")
    check_refused(result, "is the text to align: name another file", code=2)
    assert (files / pair[0]).read_bytes() == text


UNIT = '<tu><tuv xml:lang="es"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>{}</seg></tuv></tu>\n'


@pytest.fixture
def memory(files):
    pytest.importorskip("lxml")
    lines = (files / "pairs.tsv").read_text(encoding="utf-8").split("\n")
    units = "".join(UNIT.format(*line.split("\t")) for line in lines)
    text = f'<tmx version="1.4"><header srclang="es"/><body>{units}</body></tmx>'
    (files / "pairs.tmx").write_text(text, encoding="utf-8")
    return files


def test_a_translation_memory_has_the_links_of_its_table(memory):
    lines = run("align", "--adapt", "pairs.tsv").lines
    assert run("align", "--adapt", "pairs.tmx").lines == lines
    languages = ["--source-language", "es", "--target-language", "en"]
    result = run("align", "--adapt", "pairs.tmx", *languages, "--format", "tmx")
    (memory / "linked.tmx").write_text(result.out, encoding="utf-8")
    assert list(Tmx(memory / "linked.tmx").rows()) == list(Tmx(memory / "pairs.tmx").rows())
    assert result.out.count(f'<prop type="x-links">{LINKS}</prop>') == 12
    assert run("data", "check", "pairs.tmx").code == 0
    (memory / "pairs.tmx").write_text("<tmx><body><tu>", encoding="utf-8")
    check_refused(run("align", "--adapt", "pairs.tmx"), "pairs.tmx:1: not well-formed XML")
    assert "not well-formed XML" in run("data", "check", "pairs.tmx").out


def test_the_attention_of_a_translator_is_averaged_in(files):
    result = run("align", "--adapt", "a", "b", "--translator", "es-en-tiny", "--confidence")
    assert [" ".join(pair.split(":")[0] for pair in line.split()) for line in result.lines] == [
        *[LINKS] * 3, "", *[LINKS] * 9
    ]  # fmt: skip
    assert "es-en-tiny: layer 1, mean of its heads" in result.err
    assert "its share is 0.4" in result.err
    assert result.lines != run("align", "--adapt", "a", "b", "--confidence").lines


def test_an_interrupted_command_prints_and_keeps_nothing(files, monkeypatch):
    tick, rounds = learning._Clock.tick, []

    def interrupted(self) -> None:
        tick(self)
        rounds.append(1)
        if len(rounds) == 20:
            signal.signal(
                signal.SIGINT, signal.default_int_handler
            )  # jobs in the background ignore it
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(learning._Clock, "tick", interrupted)
    result = run("align", "--adapt", "a", "b", "--keep", "kept", apart=True)
    assert (result.code, result.out) == (130, "")
    assert "Traceback" not in result.err
    assert not (files / "kept").exists()


def test_gold_links_score_what_is_learnt_from_their_sentences(files):
    gold = [
        {"src": line.split("\t")[0].split(), "tgt": [*line.split("\t")[1][:-1].split(), "."],
         "sure": [[0, 0], [1, 2], [2, 1], [3, 3]]}
        for line in LINES
    ]  # fmt: skip
    (files / "gold.jsonl").write_text("\n".join(map(json.dumps, gold)), encoding="utf-8")
    result = run("evaluate", "--adapt", "--alignments", "gold.jsonl")
    assert "AER 0.00  precision 100.00" in result.out
    refused = run("evaluate", "--adapt", "--alignments", "gold.jsonl", "--hypotheses", "a")
    check_refused(refused, "leave out --hypotheses", code=2)
    check_refused(run("evaluate", "--adapt"), "--adapt belongs to --alignments", code=2)


def test_pairs_that_are_no_translations_have_low_scores(files):
    lines = [*LINES * 2, "ella duerme\tthe red table"]
    (files / "wrong.tsv").write_text("\n".join(["\t", *lines]), encoding="utf-8")
    result = run("data", "check", "wrong.tsv", "--scores", "scores")
    assert result.code == 0
    assert "hardly a translation, by its word links (score below 0.12): wrong.tsv:26" in result.out
    rows = [line.split("\t") for line in (files / "scores").read_text().splitlines()]
    assert [row[:2] for row in rows] == [["wrong.tsv", str(n)] for n in range(2, 27)]
    assert min(rows, key=lambda row: float(row[2]))[1] == "26"
