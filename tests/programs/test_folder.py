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
from regard.translation import checksums


@pytest.fixture
def folder(tmp_path):
    save(compile(PROGRAMS["induction"], 6), tmp_path / "induction")
    return tmp_path / "induction"


def test_what_is_opened_answers_as_what_was_saved(folder):
    opened, compiled = open_folder(folder), compile(PROGRAMS["induction"], 6)
    assert opened("abcaba") == compiled("abcaba") == PROGRAMS["induction"]("abcaba")
    assert (opened.name, opened.length, opened.example) == ("induction", 6, tuple("abcabc"))
    assert opened.heads == compiled.heads
    for name, tensor in compiled.model.state_dict().items():
        assert torch.equal(opened.model.state_dict()[name], tensor)


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
        ("sizes", {"width": 90_000}, "the configuration asks for"),
        ("heads", 3, "expected a compiled program"),
    ],
)
def test_a_changed_description_is_refused(folder, key, value, words):
    content = json.loads((folder / "program.json").read_text())
    content[key] = content[key] | value if isinstance(value, dict) else value
    (folder / "program.json").write_text(json.dumps(content))
    checksums.sign(folder, ["program.json", "model.safetensors"])
    with pytest.raises(ModelError, match=words):
        open_folder(folder)


def test_the_model_can_be_watched(folder):
    compiled = open_folder(folder)
    with regard.watch(compiled.model) as seen:
        compiled("abcaba")
    assert len(seen) == 2
    (look,) = (seen[name] for name in list(seen)[1:])
    # The last a reads what followed the a before it: the b at position 4, where begin is 0.
    assert look.weights()[0, 0, 6].argmax() == 5
