"""`regard programs`, and the folders that it writes, in `regard look` and `regard explore`."""

from __future__ import annotations

import pytest
import torch
from tests.journeys.commands import run_here

from regard.cli import computing
from regard.errors import DataError
from regard.explorer.contract import pack
from regard.programs import PROGRAMS, open_folder

MODULE = """
from regard.programs import program, indices, tokens, width, select

@program("01")
def parity():
    "Whether there is an odd number of ones."
    return width(select(tokens, "1")) % 2 == 1

@program("01")
def ones():
    return tokens == "1"

other = 3
"""


@pytest.fixture(autouse=True)
def a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "own_programs.py").write_text(MODULE, encoding="utf-8")


def test_the_list_has_every_program_and_its_size():
    lines = run_here("programs", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(PROGRAMS)
    assert all(PROGRAMS[line.split()[0]].about in line for line in lines[1:])
    longer = run_here("programs", "list", "--length", "40").out
    assert longer.splitlines()[1] != lines[1]
    assert " - " in longer  # too long for some


def test_a_program_answers_and_shows_what_it_read():
    result = run_here("programs", "run", "histogram", "hello")
    assert result.code == 0
    assert result.out.startswith("h e l l o\n1 1 2 2 1\n\n1 layer, 1 head of width 5,")
    assert "layer 0, head 0: width(tokens == tokens)" in result.out
    assert "33" in result.out  # a third for begin and for each l


def test_one_head_can_be_asked_for():
    out = run_here("programs", "run", "sort", "banana", "--layer", "0", "--head", "1").out
    assert "layer 0, head 1" in out
    assert "head 0" not in out


def test_a_program_of_ones_own_runs():
    result = run_here("programs", "run", "own_programs:parity", "10011")
    assert result.out.startswith("1       0    0    1    1\nTrue True True True True")


def test_a_program_without_attention_says_so():
    result = run_here("programs", "run", "own_programs:ones", "01")
    assert result.out.splitlines()[-1].startswith("no attention is used")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch", "ab"), "error: nosuch: no such program; there are copy, shift, reverse"),
        (("dyck-1", "(x)"), "error: token 1 is 'x': the alphabet of dyck-1 is ( )"),
        (("copy", ""), "error: TEXT is empty: pass at least one token"),
        (("own_programs:other", "1"), "error: own_programs:other: own_programs has no function"),
        (("own_programs:nosuch", "1"), "error: own_programs:nosuch: own_programs has no function"),
        (("collections:Counter", "1"), "error: collections:Counter: is of type type: put @program"),
        (("copy", "ab", "--layer", "1"), "error: --layer 1: the model has layers 0 to 0"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message):
    result = run_here("programs", "run", *arguments)
    assert result.code in (1, 2)
    assert result.err.startswith(message)
    assert len(result.err.splitlines()) == 1


def test_a_compiled_program_is_a_folder_that_look_and_explore_open(tmp_path):
    result = run_here("programs", "compile", "reverse", "--out", "reverse", "--length", "5")
    assert (result.code, result.out.splitlines()[-1]) == (0, "wrote reverse")
    looked = run_here("look", "--model", "reverse", "abca")
    assert looked.out.startswith("a b c a\na c b a\n\nlayer 0, head 0: ")
    assert "layer 1, head 0: first(indices == width(indices > indices), tokens)" in looked.out
    assert run_here("look", "--model", "reverse", "abca", "--out", "page.html").code == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    run_here("look", "--model", "reverse", "abca", "--out", "pictures")
    assert sorted(each.name for each in (tmp_path / "pictures").iterdir()) == [
        "layer.0.self.png",
        "layer.1.self.png",
    ]
    scene = computing.scene("reverse")
    assert (scene.title, scene.sequences[0].tokens) == (
        "reverse",
        ["begin", "a", "b", "c", "a", "b"],
    )
    assert pack(scene)


@pytest.mark.parametrize("name", ["sort", "dyck-2"])
def test_heads_that_a_program_does_not_use_are_not_shown(tmp_path, name):
    run_here("programs", "compile", name, "--out", name, "--length", "5")
    compiled = open_folder(name)
    used = {f"layer.{n}.self": len(heads) for n, heads in enumerate(compiled.heads) if heads}
    assert sum(used.values()) < compiled.model.sizes.layers * compiled.model.sizes.heads
    scene = computing.scene(name)
    assert {each.name: each.shape[0] for each in scene.attentions} == used
    for attention in scene.attentions:
        number = int(attention.name.split(".")[1])
        whole_weights = compiled.looks(compiled.example)[number].weights()[0]
        assert torch.equal(attention.look.weights(), whole_weights[: used[attention.name]])
    text = "".join(map(str, compiled.example[:4]))
    run_here("look", "--model", name, text, "--out", "pictures")
    assert {each.stem for each in (tmp_path / "pictures").iterdir()} == set(used)
    result = run_here("look", "--model", name, text, "--out", "one.html", "--head", "5")
    assert result.code == 2
    assert result.last_line.startswith("error: --head 5")


def test_a_program_without_attention_has_nothing_to_explore():
    run_here("programs", "compile", "own_programs:ones", "--out", "ones", "--length", "3")
    result = run_here("look", "--model", "ones", "010", "--out", "page.html")
    assert result.last_line == (
        "error: ones: no attention is used: the program works on each position alone"
    )
    with pytest.raises(DataError, match="no attention is used"):
        computing.scene("ones")


def test_a_program_is_compiled_over_another_alphabet():
    run_here("programs", "compile", "sort", "--alphabet", "zyx", "--length", "3", "--out", "sort")
    assert run_here("look", "--model", "sort", "zxy").out.startswith("z x y\nx y z\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compile", "copy", "--out", "own_programs.py"), "is there already: choose a new folder"),
        (("compile", "copy", "--out", "a/b/c"), "a/b/c"),
        (("compile", "dyck-1", "--alphabet", "ab", "--out", "x"), "has an alphabet of its own"),
        (("compile", "copy", "--alphabet", "", "--out", "x"), "--alphabet is empty"),
        (("compile", "copy", "--length", "0", "--out", "x"), "--length 0: use a whole number"),
        (("compile", "dyck-2", "--length", "100", "--out", "x"), "compile for a shorter length"),
        (("list", "--length", "0"), "--length 0: use a whole number"),
    ],
)
def test_what_cannot_be_compiled_leaves_nothing(tmp_path, arguments, message):
    result = run_here("programs", *arguments)
    assert result.code in (1, 2)
    assert message in result.last_line
    assert [each.name for each in tmp_path.iterdir()] == ["own_programs.py"]


def test_options_of_translators_are_refused_for_a_program():
    run_here("programs", "compile", "copy", "--out", "copy")
    result = run_here("look", "--model", "copy", "ab", "--target", "ba")
    assert (result.code, result.last_line) == (
        2,
        "error: --model copy and --target do not go together: it is a compiled program",
    )
    assert "token 1 is 'x'" in run_here("look", "--model", "copy", "ax").last_line
