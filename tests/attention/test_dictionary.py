"""The memory as a dictionary: keys that are strings, payloads, and what a person reads."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.attention.memory import CharacterNgrams, Memory
from regard.attention.shapes import ShapeError

LINES = {"From": "Dean Moriarty", "Subject": "Professor Perry", "Date": "14 July"}


def written(normaliser: Any = None, **how: Any) -> Memory:
    memory = Memory(encoder=CharacterNgrams(64), normaliser=normaliser, **how)
    memory.write(LINES)
    return memory


def test_a_dict_is_written_and_read_as_one():
    memory = written("hard")
    assert len(memory) == 3
    assert list(memory) == list(LINES)
    assert dict(memory.items()) == LINES
    assert memory.payloads == list(LINES.values())
    assert "Subject" in memory
    assert "subject" not in memory  # it is read as "Subject" is, but nobody wrote it
    assert {name: memory[name] for name in memory} == LINES
    memory.write({})
    assert len(memory) == 3


def test_a_soft_lookup_by_words_is_the_best_payload_with_its_weight():
    memory = written()
    best = memory["subjct"]
    assert repr(best) == f"Found({best.weights.item():.2f} 'Professor Perry')"
    weights, payloads = best
    assert payloads == ["Professor Perry"]
    torch.testing.assert_close(weights, memory.find("subjct").weights[:1])
    several = memory[["Date", "From"]]
    assert several.payloads == [["14 July"], ["Dean Moriarty"]]
    assert repr(several).count("[") == 2
    blended = memory.encoder(["Date"])  # vectors are for networks
    assert torch.equal(memory[blended], memory.read(blended))


def test_an_entry_is_set_and_replaced():
    memory = written("hard")
    before = memory.values
    memory["Subject"] = "the dean"
    memory["To"] = "Sal Paradise"
    memory["Size"] = {"kilobytes": 4}
    assert dict(memory.items()) == {
        **LINES,
        "Subject": "the dean",
        "To": "Sal Paradise",
        "Size": {"kilobytes": 4},
    }
    assert memory["subjct"] == "the dean"
    torch.testing.assert_close(memory.values[1], memory.encoder(["the dean"])[0])
    assert torch.equal(before[1], memory.encoder(["Professor Perry"])[0])  # no reading changes
    memory.write(["From"], ["somebody"])  # which appends
    assert len(memory) == 6
    with pytest.raises(TypeError, match="pass a string or a vector"):
        memory[["a", "b"]] = "c"


@pytest.mark.parametrize("trainable", [False, "values", True])
def test_an_entry_of_vectors_is_set_and_replaced(trainable):
    memory = Memory(trainable=trainable)
    memory.write(torch.eye(3), torch.arange(3.0))
    parameters = dict(memory.named_parameters())
    memory[torch.eye(3)[1]] = 7.0
    assert memory.values.flatten().tolist() == [0, 7, 2]
    assert torch.eye(3)[2] in memory
    assert [0.0, 1.0, 0.0] in memory
    assert torch.ones(3) not in memory
    assert None not in memory
    assert all(parameters[name] is each for name, each in memory.named_parameters())
    memory[torch.ones(3)] = torch.tensor([9.0])
    assert [key.tolist() for key in memory][3] == [1, 1, 1]
    assert memory.values.flatten().tolist() == [0, 7, 2, 9]
    with pytest.raises(ShapeError, match="values are 2 wide: pass values of width 1"):
        memory[torch.ones(3)] = torch.zeros(2)


def test_a_dict_of_other_objects_keeps_them_as_payloads():
    memory = Memory(encoder=CharacterNgrams(64), normaliser="hard")
    memory.write({"a": None, "b": [1, 2], "c": "text"})
    assert memory["b"] == [1, 2]
    assert memory.values is memory.keys
    vectors = Memory(encoder=CharacterNgrams(64))
    vectors.write({"a": torch.ones(2), "b": torch.zeros(2)})
    assert vectors.values.tolist() == [[1, 1], [0, 0]]
    assert vectors["a"].shape == (2,)
    with pytest.raises(TypeError, match="a dict holds its values"):
        memory.write({"a": "b"}, ["c"])


def test_a_memory_says_what_it_holds():
    memory = written("hard")
    assert repr(memory).startswith(
        "Memory({'From': 'Dean Moriarty', 'Subject': 'Professor Perry', 'Date': '14 July'},"
        " entries=3, score=Cosine(scale=20.0), normaliser=Hard("
    )
    memory.write([f"key {number}" for number in range(50)])
    assert "…" in repr(memory)
    assert "entries=53" in repr(memory)
    assert len(repr(memory)) < 500
    assert repr(Memory()) == "Memory({}, entries=0)"
    vectors = Memory()
    vectors.write(torch.zeros(1, 3))
    assert repr(vectors) == "Memory({a vector of 3: a vector of 3}, entries=1)"


def test_keys_and_payloads_survive_a_state_and_a_file(tmp_path):
    memory, receiver = written("hard"), Memory(encoder=CharacterNgrams(64), normaliser="hard")
    save_file(memory.state_dict(), tmp_path / "state.safetensors")
    receiver.load_state_dict(load_file(tmp_path / "state.safetensors"))
    memory.save(tmp_path / "memory.safetensors")
    for again in (receiver, Memory.open(tmp_path / "memory.safetensors")):
        assert dict(again.items()) == LINES
        again["Subject"] = "the dean"
        assert again["subjct"] == "the dean"
        assert len(again) == 3
    state = memory.state_dict()
    state["entries.payloads"] = state["entries.payloads"][:-4]
    with pytest.raises(RuntimeError, match="memory entries"):
        Memory().load_state_dict(state)
    state = memory.state_dict()
    state["entries.names"] = torch.tensor([*b"[1, [2], null]"], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"memory entries.: names are not strings"):
        Memory().load_state_dict(state)


def test_a_payload_that_json_cannot_hold_is_alone_left_out_of_a_state():
    memory, receiver = written("hard"), Memory(encoder=CharacterNgrams(64), normaliser="hard")
    memory["obj"], memory["more"] = {1, 2}, [float("nan")]
    with pytest.warns(UserWarning, match=r"payload of entry 'obj' \(Object .* set .*\) and 1 more"):
        receiver.load_state_dict(memory.state_dict())
    assert receiver.payloads == [*LINES.values(), None, None]
    assert list(receiver) == [*LINES, "obj", "more"]
    vectors = Memory()
    vectors.write(torch.eye(2), payloads=[1, object()])
    with pytest.warns(
        UserWarning, match="payload of entry 1 .*: the state of the memory is without"
    ):
        vectors.state_dict()


def test_a_state_of_other_keys_leaves_no_names_of_those_before():
    memory, others = Memory(encoder=CharacterNgrams(64)), Memory()
    memory.write({"a": "one", "b": "two"})
    state = memory.state_dict()
    others.write(torch.randn(2, 64))
    memory.load_state_dict({"entries.key": state["entries.key"]})
    assert list(memory) == ["a", "b"]
    memory.load_state_dict(others.state_dict())
    assert "a" not in memory
    assert memory.payloads == [None, None]


def test_a_shallow_copy_is_written_to_by_itself():
    memory = written("hard")
    memory["To"] = "Sal Paradise"  # there is spare room now
    twin = copy.copy(memory)
    twin["Subject"], twin["Cc"], memory["Bcc"] = "the dean", "Carlo Marx", "Old Bull Lee"
    assert dict(memory.items()) == {**LINES, "To": "Sal Paradise", "Bcc": "Old Bull Lee"}
    assert list(twin) == [*LINES, "To", "Cc"]
    assert (twin["Subject"], twin["Cc"]) == ("the dean", "Carlo Marx")
    assert (memory["Subject"], memory["Bcc"]) == ("Professor Perry", "Old Bull Lee")
    assert torch.equal(memory.keys[4], memory.encoder(["Bcc"])[0])
    assert torch.equal(twin.keys[4], twin.encoder(["Cc"])[0])
