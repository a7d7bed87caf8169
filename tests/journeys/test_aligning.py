"""`regard align`: links of given translations, and the attention that is chosen for them."""

from __future__ import annotations

import json
import os
import threading

import pytest
from tests.journeys.commands import check_refused, leftovers, run

from regard.translation import weights

PAIR = ["--text", "El gato ve niño hoy.", "The cat sees child today."]


@pytest.fixture
def gold(tmp_path):
    """Six sentences; the first words of both sides belong together."""
    path = tmp_path / "gold.jsonl"
    options = {"src": "El gato come .".split(), "tgt": "The cat eats .".split()}
    links = {"sure": [[0, 0], [1, 1], [2, 2], [3, 3]], "possible": [[1, 0]]}
    path.write_text(f"{json.dumps({**options, **links})}\n" * 6, encoding="utf-8")
    return path


def check_links(line: str, sources: int, targets: int) -> None:
    for link in line.split():
        source, target = map(int, link.split("-"))
        assert 0 <= source < sources
        assert 0 <= target < targets


def test_each_line_has_its_links_and_what_is_used_is_said(trained, tmp_path):
    (tmp_path / "a").write_text("El gato come hoy.\n\nEl sol\n", encoding="utf-8")
    (tmp_path / "b").write_text("The cat eats today.\n\nThe sun\n", encoding="utf-8")
    result = run("align", "a", "b", "--model", trained)
    assert result.code == 0, result
    first_line, empty, last_line = result.lines
    check_links(first_line, 4, 4)
    check_links(last_line, 2, 2)
    assert len(first_line.split()) == 4
    assert empty == ""
    assert "layer 0, mean of its heads, rows of the word written, balanced, argmax" in result.err
    assert "nothing was chosen for this model" in result.err


def test_json_holds_words_links_and_weights(trained):
    plain = run("align", *PAIR, "--model", trained)
    result = run("align", *PAIR, "--model", trained, "--format", "json")
    document = json.loads(result.out)
    assert document["source"] == "El gato ve niño hoy.".split()
    assert document["target"] == "The cat sees child today.".split()
    assert " ".join(f"{s}-{t}" for s, t in document["links"]) == plain.lines[0]
    assert all(0 < weight <= 1 for weight in document["weights"])


def test_every_option_changes_what_is_read(trained):
    def outputs(*options: str) -> tuple[str, str]:
        result = run("align", *PAIR, "--model", trained, "--format", "json", *options)
        assert result.code == 0, result
        return result.out, result.err

    plain = outputs("--no-balance")
    for options in (
        ["--no-balance", "--head", "1"],
        ["--no-balance", "--shift"],
        ["--balance"],
        ["--no-balance", "--method", "threshold", "--threshold", "0.01"],
    ):
        out, err = outputs(*options)
        assert out != plain[0]
        assert err != plain[1]
        assert "as asked for" in err
    everything = json.loads(
        outputs("--no-balance", "--method", "threshold", "--threshold", "1e-9")[0]
    )
    assert len(everything["links"]) == 25
    mutual, argmax = (json.loads(outputs("--method", name)[0]) for name in ("mutual", "argmax"))
    assert {tuple(link) for link in mutual["links"]} <= {tuple(link) for link in argmax["links"]}


def test_two_directions_grow_diagonally(trained):
    command = ["align", *PAIR, "--model", trained, "--reverse-model", trained]
    result = run(*command, "--method", "grow-diagonal")
    assert result.code == 0, result
    assert result.err.count("note: ") == 2
    check_links(result.lines[0], 5, 5)
    assert run(*command).out == result.out


def test_a_pair_is_drawn(trained, tmp_path):
    result = run("align", *PAIR, "--model", trained, "--out", "x.png")
    assert result.code == 0, result
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "a").write_text("El\nEl\n", encoding="utf-8")
    many__result = run("align", "a", "a", "--model", trained, "--out", "y.png")
    check_refused(many__result, "--out draws one pair", code=2)
    assert not (tmp_path / "y.png").exists()
    assert leftovers(tmp_path) == []


def test_the_choice_is_reported_kept_and_used(model, gold):
    result = run("align", "--choose", gold, "--model", model)
    assert result.code == 0, result
    assert result.lines[0].startswith("6 sentences of gold.jsonl")
    for row in ("layer 0 mean   written", "layer 0 head 1 read"):
        assert any(line.startswith(row) for line in result.lines)
    assert "diagonal 0.0" in result.lines
    best = next(line for line in result.lines if line.startswith("best"))
    assert (model / "alignment.toml").is_file()
    later = run("align", *PAIR, "--model", model)
    assert f"{best.partition('): ')[2]}; chosen by gold.jsonl, AER" in later.err
    listed_result = run("evaluate", "--alignments", gold, "--model", model)
    assert listed_result.lines[1].startswith(f"AER {best.split()[1]}")
    # One layer asked for, nothing else: the head of another choice is not carried over.
    asked_result = run("align", *PAIR, "--model", model, "--layer", "0")
    assert "layer 0, mean of its heads" in asked_result.err


def test_a_choice_for_other_weights_says_so(model, gold):
    assert run("align", "--choose", gold, "--model", model).code == 0
    (model / "checksums.json").unlink()
    file = model / "alignment.toml"
    text = file.read_text(encoding="utf-8")
    start = text.index('weights = "') + len('weights = "')
    file.write_text(text[:start] + "0" * 8 + text[start + 8 :], encoding="utf-8")
    later = run("align", *PAIR, "--model", model)
    assert later.code == 0
    assert "for other weights than these: choose again" in later.err
    file.write_text("layer = 0", encoding="utf-8")
    check_refused(run("align", *PAIR, "--model", model), "alignment.toml")


def test_weights_that_overflow_are_told_and_not_read_as_no_links(model, tmp_path):
    (model / "checksums.json").unlink()
    path = model / "model.safetensors"
    large = {name: tensor * 1e30 for name, tensor in weights.load(path).items()}
    weights.save(large, path)
    result = run("align", "--model", model, "--text", "El gato", "The cat")
    check_refused(result, "not finite")
    assert not result.out


def test_nothing_is_kept_unless_wanted_or_where_nothing_can_be(model, gold):
    result = run("align", "--choose", gold, "--model", model, "--no-store", "--format", "json")
    document = json.loads(result.out)
    assert document["sentences"] == 6
    assert min(one["aer"] for one in document["tried"]) == document["best"]["aer"]
    assert not (model / "alignment.toml").exists()
    (model / "alignment.toml").mkdir()
    check_refused(run("align", "--choose", gold, "--model", model), "alignment.toml")


def test_links_alone_need_the_sentences(model, tmp_path):
    (tmp_path / "gold").write_text("0-0 1-1\n" * 4, encoding="utf-8")
    (tmp_path / "a").write_text("El gato\n" * 4, encoding="utf-8")
    (tmp_path / "b").write_text("The cat\n" * 4, encoding="utf-8")
    choose = ["align", "--choose", "gold", "--model", model, "--no-store"]
    check_refused(run(*choose), "links without words", code=2)
    assert run(*choose, "a", "b").code == 0
    (tmp_path / "b").write_text("The\n" * 4, encoding="utf-8")
    check_refused(run(*choose, "a", "b"), "gold:1", "--flip")
    (tmp_path / "b").write_text("The cat\n" * 3, encoding="utf-8")
    check_refused(run(*choose, "a", "b"), "b has 3")


@pytest.mark.parametrize(
    ("arguments", "named", "code"),
    [
        (["a"], "a: no such file", 1),  # a table
        ([], "--choose", 2),
        (["none", "none"], "none: no such file", 1),
        (["El gato", "The cat"], "--text", 1),
        ([*PAIR, "--layer", "7"], "layers 0 to 0", 2),
        ([*PAIR, "--head", "7"], "heads 0 to 1", 2),
        ([*PAIR, "--layer", "-1"], "layer -1", 2),
        ([*PAIR, "--threshold", "7"], "threshold 7", 2),
        ([*PAIR, "--method", "grow-diagonal"], "--reverse-model", 2),
        ([*PAIR, "--out", "x.txt"], "x.txt", 2),
        ([*PAIR, "--flip"], "--choose", 2),
        (["--choose", "gold", "--layer", "0"], "--choose", 2),
        (["--choose", "none"], "none: no such file", 1),
        (["--choose", "none", "--limit", "-1"], "--limit -1", 2),
        (["El gato " * 50, "The cat"], "--text", 1),  # longer than a file's name may be
    ],
)
def test_what_cannot_be_meant_is_refused(trained, arguments, named, code):
    check_refused(run("align", *arguments, "--model", trained), named, code=code)


def test_unequal_files_are_told_before_the_first_link(trained, tmp_path):
    (tmp_path / "a").write_text("El\nEl\n", encoding="utf-8")
    (tmp_path / "b").write_text("The\n", encoding="utf-8")
    result = run("align", "a", "b", "--model", trained)
    check_refused(result, "a has 2 lines and b has 1")
    assert result.out == ""


def test_a_pipe_is_read_once_and_linked_like_a_file(trained, tmp_path):
    (tmp_path / "a").write_text("El gato\nEl sol\n", encoding="utf-8")
    (tmp_path / "b").write_text("The cat\nThe sun\n", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(
        target=(tmp_path / "pipe").write_bytes, args=((tmp_path / "a").read_bytes(),), daemon=True
    )
    writer.start()
    result = run("align", "pipe", "b", "--model", trained)
    assert result.code == 0, result
    assert result.out == run("align", "a", "b", "--model", trained).out
