"""The memory as a dictionary: keys that are strings, payloads, and what a person reads."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.attention.shapes import ShapeError
from regard.memory import CharacterNgrams, Memory

LINES = {"From": "Dean Moriarty", "Subject": "Professor Perry", "Date": "14 July"}


def filled_memory(normaliser: Any = None, **how: Any) -> Memory:
    memory = Memory(encoder=CharacterNgrams(64), normaliser=normaliser, **how)
    memory.write(LINES)
    return memory


def test_a_dict_is_written_and_read_as_one():
    memory = filled_memory("hard")
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
    memory = filled_memory()
    best = memory["subjct"]
    assert repr(best) == f"Found({best.weights.item():.2f} 'Professor Perry')"
    weights, payloads = best
    assert payloads == ["Professor Perry"]
    torch.testing.assert_close(weights, memory.find("subjct").weights[:1])
    values = memory[["Date", "From"]]
    assert values.payloads == [["14 July"], ["Dean Moriarty"]]
    assert repr(values).count("[") == 2
    blended = memory.encoder(["Date"])  # vectors are for networks
    assert torch.equal(memory[blended], memory.read(blended))


def test_an_entry_is_set_and_replaced():
    memory = filled_memory("hard")
    original_values = memory.values
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
    assert torch.equal(
        original_values[1], memory.encoder(["Professor Perry"])[0]
    )  # no reading changes
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


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_arrays_and_lists_are_keys_and_values_as_tensors_are(kind):
    memory = Memory(normaliser="hard")
    memory.write(np.eye(3, dtype=kind), np.eye(3, dtype=kind))
    key = np.array([1, 0, 0], kind)
    assert key in memory
    assert key[::-1] in memory
    assert np.ones(3, kind) not in memory
    memory[key] = np.array([9, 9, 9], kind)
    memory[[0.0, 1.0, 0.0]] = [1, 2, 3]
    assert memory.values.tolist() == [[9, 9, 9], [1, 2, 3], [0, 0, 1]]
    assert memory.payloads == [None] * 3
    assert memory[key].tolist() == [9, 9, 9]
    memory[[torch.tensor(2.0), torch.tensor(0.0), torch.tensor(1.0)]] = (4, 5, 6)
    assert memory.values[3].tolist() == [4, 5, 6]
    for matrix in (np.ones((2, 3)), torch.ones(2, 3)):
        with pytest.raises(ShapeError, match=r"a value has shape \[2, 3\]: pass one vector"):
            memory[key] = matrix
    with pytest.raises(ShapeError, match="values are 2 and 3 wide: pass values of one width"):
        memory.write({(1.0, 1.0, 1.0): [1, 2], (2.0, 2.0, 2.0): [1, 2, 3]})
    assert len(memory) == 4


def test_an_entry_without_a_payload_answers_with_its_value():
    memory = filled_memory("hard")
    memory["vector"] = torch.ones(64)
    memory.write("only")
    assert torch.equal(memory["vector"], torch.ones(64))
    assert torch.equal(memory["only"], memory.encoder(["only"])[0])
    assert memory[["vector", "Date"]][1] == "14 July"
    assert all(memory[name] is item or memory[name].equal(item) for name, item in memory.items())
    memory.normaliser = "softmax"
    assert torch.equal(memory["vector"].payloads[0], torch.ones(64))
    assert memory.find("vector", 1).payloads == [None]


def test_writing_a_dict_replaces_the_entries_of_its_keys():
    memory = filled_memory("hard")
    memory.write({"To": "Sal Paradise", "Subject": "the dean", "From": "Carlo Marx"})
    memory.update({"Cc": "Jane Lee"})
    expected = {**LINES, "Subject": "the dean", "From": "Carlo Marx"}
    assert dict(memory.items()) == {**expected, "To": "Sal Paradise", "Cc": "Jane Lee"}
    assert {name: memory[name] for name in memory} == dict(memory.items())
    assert torch.equal(memory.values[0], memory.encoder(["Carlo Marx"])[0])
    vectors = Memory(trainable="values")
    vectors.write(torch.eye(2), torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="values are 4 wide"):
        vectors.write({(5.0, 5.0): torch.ones(4), (1.0, 0.0): torch.ones(4)})
    assert len(vectors) == 2
    assert vectors.values.eq(0).all()
    vectors.write({(5.0, 5.0): torch.ones(3), (1.0, 0.0): torch.ones(3)})
    assert vectors.values.tolist() == [[1] * 3, [0] * 3, [1] * 3]


def test_an_object_becomes_the_payload_and_the_value_stays():
    memory = Memory(encoder=CharacterNgrams(64), normaliser="hard")
    memory.write(["x"], torch.full((1, 3), 7.0))
    memory["x"] = {"p": 1}
    assert memory["x"] == {"p": 1}
    assert memory.values.tolist() == [[7, 7, 7]]
    memory["x"] = torch.ones(3)
    assert memory["x"].tolist() == [1, 1, 1]
    for item in ({"p": 1}, "text", 5):
        with pytest.raises(
            ShapeError, match=r"are 3 wide, and .* is no vector of this width: write it beside one"
        ):
            memory["y"] = item
    assert len(memory) == 1


def test_numbers_and_lists_among_strings_are_payloads():
    memory = filled_memory("hard")
    memory["n"], memory["list"], memory["t"] = 5, [1, 2], (1, 2)
    memory["Subject"] = 7
    assert (memory["n"], memory["list"], memory["t"], memory["Subject"]) == (5, [1, 2], (1, 2), 7)


def test_get_finds_the_keys_that_were_written():
    memory = filled_memory()
    assert memory.get("Subject") == "Professor Perry"
    assert memory.get("subject") is None
    assert memory.get("subject", "nobody") == "nobody"
    vectors = Memory()
    vectors.write(torch.eye(2), torch.arange(2.0))
    assert vectors.get([0, 1]).tolist() == [1]


def test_a_method_of_a_dict_that_a_memory_lacks_says_what_serves():
    memory = filled_memory()
    for name in ("pop", "popitem", "clear"):
        with pytest.raises(AttributeError, match="nothing is deleted: write the entries to keep"):
            getattr(memory, name)
    with pytest.raises(AttributeError, match="has no setdefault: write `if key not in memory"):
        memory.setdefault("a", "b")
    with pytest.raises(TypeError, match="cannot be deleted: write the entries to keep"):
        del memory["Subject"]
    with pytest.raises(AttributeError, match="'Memory' object has no attribute 'gte'"):
        memory.gte("a")


@pytest.mark.parametrize("key", [None, b"x", slice("a", "b"), ["k", 2], [("a", "b")], {}, 1j])
def test_an_object_that_is_no_key_is_refused(key):
    memory = filled_memory()
    with pytest.raises(TypeError, match="pass vectors, a string or a list of strings"):
        memory[key]
    with pytest.raises(TypeError, match="as a key: pass a string or a vector"):
        memory[key] = "value"
    assert key not in memory
    assert ("a", "b") not in memory
    assert ["a"] not in memory
    with pytest.raises(TypeError, match="pass vectors, a string or a list of strings"):
        memory.write(["a"], [key])
    with pytest.raises(TypeError, match="got 2 as a key: pass a string or a vector"):
        memory.write({"a": "b", 2: "c"})
    assert len(memory) == 3


def test_what_is_no_encoder_is_refused_as_is_a_count_that_is_none():
    with pytest.raises(TypeError, match="encoder is 'ngrams': pass a function"):
        Memory(encoder="ngrams")
    with pytest.raises(TypeError, match="the encoder made 1 of 1 strings: it has to make a vector"):
        Memory(encoder=len).write("a")
    with pytest.raises(TypeError, match="k is 'two': pass a whole number"):
        filled_memory().find("Subject", "two")


def test_an_entry_without_a_name_is_known_by_its_vector_beside_entries_with_one():
    memory = Memory(encoder=CharacterNgrams(64), normaliser="hard")
    memory.write(memory.encoder(["x", "y"]), payloads=[1, 2])
    memory["z"] = {"q": 1}
    assert "x" in memory
    memory["y"] = {"v": 8}
    assert len(memory) == 3
    assert memory["y"] == {"v": 8}


def test_a_memory_says_what_it_holds():
    memory = filled_memory("hard")
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
    memory, receiver = filled_memory("hard"), Memory(encoder=CharacterNgrams(64), normaliser="hard")
    save_file(memory.state_dict(), tmp_path / "state.safetensors")
    receiver.load_state_dict(load_file(tmp_path / "state.safetensors"))
    memory.save(tmp_path / "memory.safetensors")
    for restored in (receiver, Memory.open(tmp_path / "memory.safetensors")):
        assert dict(restored.items()) == LINES
        restored["Subject"] = "the dean"
        assert restored["subjct"] == "the dean"
        assert len(restored) == 3
    state = memory.state_dict()
    state["entries.payloads"] = state["entries.payloads"][:-4]
    with pytest.raises(RuntimeError, match="memory entries"):
        Memory().load_state_dict(state)
    state = memory.state_dict()
    state["entries.names"] = torch.tensor([*b"[1, [2], null]"], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"memory entries.: names are not strings"):
        Memory().load_state_dict(state)


def test_a_payload_that_json_cannot_hold_is_alone_left_out_of_a_state():
    memory, receiver = filled_memory("hard"), Memory(encoder=CharacterNgrams(64), normaliser="hard")
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


def test_a_memory_takes_back_its_own_state():
    memory = filled_memory("hard")
    memory.load_state_dict(memory.state_dict())
    assert dict(memory.items()) == LINES
    memory["Subject"] = "the dean"
    assert len(memory) == len(LINES)
    assert memory["Subject"] == "the dean"


def test_a_state_of_other_keys_leaves_no_names_of_those_before():
    memory, second_memory = Memory(encoder=CharacterNgrams(64)), Memory()
    memory.write({"a": "one", "b": "two"})
    state = memory.state_dict()
    second_memory.write(torch.randn(2, 64))
    memory.load_state_dict({"entries.key": state["entries.key"]})
    assert list(memory) == ["a", "b"]
    memory.load_state_dict(second_memory.state_dict())
    assert "a" not in memory
    assert memory.payloads == [None, None]


def test_a_shallow_copy_is_written_to_by_itself():
    memory = filled_memory("hard")
    memory["To"] = "Sal Paradise"  # there is spare room now
    twin = copy.copy(memory)
    twin["Subject"], twin["Cc"], memory["Bcc"] = "the dean", "Carlo Marx", "Old Bull Lee"
    assert dict(memory.items()) == {**LINES, "To": "Sal Paradise", "Bcc": "Old Bull Lee"}
    assert list(twin) == [*LINES, "To", "Cc"]
    assert (twin["Subject"], twin["Cc"]) == ("the dean", "Carlo Marx")
    assert (memory["Subject"], memory["Bcc"]) == ("Professor Perry", "Old Bull Lee")
    assert torch.equal(memory.keys[4], memory.encoder(["Bcc"])[0])
    assert torch.equal(twin.keys[4], twin.encoder(["Cc"])[0])
