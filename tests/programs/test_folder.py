"""A compiled program in a folder: the same answers, and damage that is named."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
import torch

import regard
from regard.errors import ModelError
from regard.programs import (
    PROGRAMS,
    Program,
    ProgramError,
    aggregate,
    compile,
    everywhere,
    numerical,
    open_folder,
    save,
    together,
    tokens,
)
from regard.programs import folder as programs_folder
from regard.translation import checksums


@pytest.fixture
def folder(tmp_path):
    save(compile(PROGRAMS["induction"], 6), tmp_path / "induction")
    return tmp_path / "induction"


def test_what_is_opened_answers_as_what_was_saved(folder):
    reopened, compiled = open_folder(folder), compile(PROGRAMS["induction"], 6)
    assert reopened("abcaba") == compiled("abcaba") == PROGRAMS["induction"]("abcaba")
    assert (reopened.name, reopened.length, reopened.example) == ("induction", 6, tuple("abcabc"))
    assert reopened.heads == compiled.heads
    for name, tensor in compiled.model.state_dict().items():
        assert torch.equal(reopened.model.state_dict()[name], tensor)


@pytest.mark.parametrize(
    ("column", "answer"),
    [
        (aggregate(everywhere, numerical(tokens == 1)), Fraction(2, 3)),
        (together(tokens, tokens == 1), (1, True)),
        (aggregate(everywhere, tokens), 1),
    ],
)
def test_answers_keep_their_types(tmp_path, column, answer):
    save(compile(Program("typed", column, (1, 2)), 3), tmp_path / "typed")
    assert open_folder(tmp_path / "typed")([1, 1, 2])[0] == answer


def test_an_answer_that_json_lacks_is_refused(tmp_path):
    program = Program("odd", together(tokens) == (1,), (b"a",))
    with pytest.raises(ProgramError, match=r"odd cannot be stored: .*bytes"):
        save(compile(program, 3), tmp_path / "odd")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_never_written_over(folder):
    with pytest.raises(ModelError, match="is there already: choose a new folder"):
        save(compile(PROGRAMS["copy"], 3), folder)
    assert open_folder(folder).name == "induction"


def test_a_folder_without_a_program_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no compiled program: it has no program\.json"):
        open_folder(tmp_path)


@pytest.mark.parametrize("name", ["program.json", "model.safetensors"])
def test_a_flipped_bit_is_noticed(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name}: corrupted or truncated"):
        open_folder(folder)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("sizes", {"layers": 10**9}, "expected a compiled program"),
        ("sizes", {"width": 90_000}, r"numbers, the sizes in program\.json ask for"),
        ("heads", 3, "expected a compiled program"),
        ("heads", [["one"]], r"program\.json: it describes 1 layers, its sizes say 2"),
        ("alphabet", list("ab"), r"program\.json: it has 2 tokens, its sizes say 3"),
        ("alphabet", ["a", "b", {"c": 1}], "is no token or answer"),
        ("alphabet", ["a", "b", float("nan")], "nan is no token or answer"),
        ("example", [["a", {}]], "is no token or answer"),
        ("answers", [], "it has 0 answers"),
        ("alphabet", list("aba"), "a token is twice in its alphabet"),
        ("answers", ["a", "b", "c", "a"], "an answer is twice in it"),
        ("heads", [["one"], ["one", "two"]], "it describes 2 heads of a layer, its sizes say 1"),
        ("example", list("abcabca"), "its example has 7 tokens, its sizes say at most 6"),
        ("example", list("abz"), "its example has 'z', which is not in its alphabet"),
        ("example", "abc", "expected a compiled program"),
    ],
)
def test_a_changed_description_is_refused(folder, key, value, words):
    edit_file(folder, key, value)
    with pytest.raises(ModelError, match=words):
        open_folder(folder)


def test_a_whole_number_of_any_size_is_a_token_and_an_answer(tmp_path):
    large = 10**400
    save(compile(Program("large", tokens, (1, large)), 3), tmp_path / "large")
    assert open_folder(tmp_path / "large")([1, large]) == [1, large]


def edit_file(folder, key, value) -> None:
    """Change the description, with checksums that match."""
    path = folder / "program.json"
    document_before = content = json.loads(path.read_text())
    content = content | {key: content[key] | value if isinstance(value, dict) else value}
    assert content != document_before
    path.write_text(json.dumps(content))
    checksums.sign(folder, ["program.json", "model.safetensors"])


def test_layers_that_the_weights_do_not_have_are_not_built(folder, monkeypatch):
    heads = json.loads((folder / "program.json").read_text())["heads"]
    edit_file(folder, "heads", heads[:1] * 20_000)
    edit_file(folder, "sizes", {"layers": 20_000})

    def built(*sizes: object) -> None:
        raise AssertionError("20,000 layers are built")

    monkeypatch.setattr(programs_folder, "SequenceModel", built)
    with pytest.raises(ModelError, match=r"model\.safetensors: has [\d,]+ numbers, the sizes in"):
        open_folder(folder)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([[1]], r"the answer \[1\] is no fraction"),
        ([1], "the answer 1 is no fraction"),
        (["1/0"], "the answer '1/0' is no fraction"),
        (["1/00"], "no fraction"),
        (["1e100000000"], "the answer '1e100000000' is no fraction"),
        (["9" * 5000], "no fraction of at most 40 digits"),
        (["2", "1"], "not in order"),
        (["1", "1"], "not in order"),
        ([], "it has none"),
    ],
)
def test_faulty_numbers_are_refused_by_name(tmp_path, answers, words):
    folder = tmp_path / "share"
    program = Program("share", aggregate(everywhere, numerical(tokens == 1)), (1, 2))
    save(compile(program, 3), folder)
    assert open_folder(folder).numerical
    edit_file(folder, "answers", answers)
    with pytest.raises(ModelError, match=words) as fault:
        open_folder(folder)
    assert "program.json" in str(fault.value)
    assert len(str(fault.value)) < 300


def test_the_model_can_be_watched(folder):
    compiled = open_folder(folder)
    with regard.watch(compiled.model) as attentions:
        compiled("abcaba")
    assert len(attentions) == 2
    (look,) = (attentions[name] for name in list(attentions)[1:])
    # The last a reads what followed the a before it: the b at position 4, where begin is 0.
    assert look.weights()[0, 0, 6].argmax() == 5
