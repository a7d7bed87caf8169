"""The soft dictionary."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from regard.attention import scores
from regard.attention.attend import attend
from regard.attention.normalisers import Hard, Sparsemax
from regard.attention.shapes import ShapeError
from regard.memory import CharacterNgrams, EmptyMemoryError, Memory


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


HEADERS = ["From", "Subject", "Date"]
LINES = ["Dean Moriarty", "Professor Perry", "14 July"]


def test_a_hard_lookup_is_a_dictionary_without_key_errors():
    memory = Memory(encoder=CharacterNgrams(), normaliser=Hard())
    memory.write(HEADERS, LINES)
    assert memory["Subject"] == "Professor Perry"
    assert memory["subjects"] == memory["sbject"] == "Professor Perry"
    assert memory[["Date", "From"]] == ["14 July", "Dean Moriarty"]
    assert memory["something else entirely"] in LINES
    assert memory[""] in LINES
    assert memory[CharacterNgrams()(["Date"])[0]] == "14 July"


def test_a_soft_lookup_is_a_blend():
    encoder = CharacterNgrams()
    memory = Memory(encoder=encoder, score=scores.Cosine(scale=8.0))
    memory.write(HEADERS, values=[1.0, 3.0, 10.0])
    weights = torch.softmax(8 * encoder(["Subject"]) @ encoder(HEADERS).T, -1)
    torch.testing.assert_close(memory["Subject"], weights[0] @ torch.tensor([[1.0], [3.0], [10.0]]))
    assert memory[["Subject", "Date"]].shape == (2, 1)
    texts = Memory(encoder=encoder)
    texts.write(HEADERS, LINES)  # strings as values are blended as vectors
    expected = torch.softmax(20 * encoder(["Date"]) @ encoder(HEADERS).T, -1) @ encoder(LINES)
    torch.testing.assert_close(texts.read(["Date"]), expected)


@pytest.mark.parametrize("entry", range(3))
def test_a_memory_of_strings_is_sharp_by_default(entry):
    memory = Memory(encoder=CharacterNgrams())
    memory.write(["Subject", "Pronoun", "Object"], ["Professor Perry", "he", "the lecture"])
    weights, payloads = memory.find(["Subject", "Pronoun", "Object"][entry], 1)
    assert weights.item() > 0.99
    assert payloads == [["Professor Perry", "he", "the lecture"][entry]]
    weights, payloads = memory.find(["subjct", "pronuon", "objects"][entry], 1)
    assert weights.item() > 0.95
    assert payloads == [["Professor Perry", "he", "the lecture"][entry]]


def test_a_memory_of_strings_is_sharp_among_hundreds_of_them():
    keys = [f"{first}{second}" for first in "abcdefghij" for second in HEADERS + LINES[:2]] * 4
    keys = [f"{key} {number // 50}" for number, key in enumerate(keys)]
    memory = Memory(encoder=CharacterNgrams())
    memory.write(keys)
    assert memory.look(keys).weights().diagonal().median() > 0.5


def test_vectors_without_an_encoder_are_attended_to_as_ever():
    memory = Memory()
    memory.write(seeded(5, 4))
    query = seeded(2, 4, seed=1)
    torch.testing.assert_close(memory.read(query), attend(query, seeded(5, 4), seeded(5, 4)))


@pytest.mark.parametrize("name", ["dot", "cosine", "general", "additive"])
def test_scores_and_normalisers_by_name(name):
    memory = Memory(d_key=4, score=name, normaliser="hard")
    memory.write(seeded(5, 4).float(), payloads=[*"abcde"])
    assert memory[seeded(1, 4, seed=1).float()][0] in "abcde"
    assert bool([*memory.parameters()]) == (name in ("general", "additive"))


def test_a_name_set_later_is_that_score_and_normaliser(tmp_path):
    memory = Memory(encoder=CharacterNgrams())
    memory.write(HEADERS, LINES)
    memory.normaliser, memory.score = "hard", "cosine"
    assert (memory.normaliser, memory.score) == (Hard(), scores.Cosine())
    assert memory["Subject"] == "Professor Perry"
    assert memory.find("Subject", 1).payloads == ["Professor Perry"]
    memory.save(tmp_path / "memory.safetensors")
    assert Memory.open(tmp_path / "memory.safetensors")["Subject"] == "Professor Perry"
    memory.score = "general"
    assert memory.score.d_key == memory.keys.shape[-1]
    with pytest.raises(ValueError, match="normaliser 'harder' is unknown"):
        memory.normaliser = "harder"
    assert memory.normaliser == Hard()


def test_a_score_that_owns_parameters_needs_the_width_of_the_keys():
    with pytest.raises(ValueError, match=r"'additive' owns parameters: pass the width .* d_key="):
        Memory(score="additive")


@pytest.mark.parametrize("score", [None, scores.Dot(), scores.General(3, 4).double()])
@pytest.mark.parametrize("normaliser", [None, Sparsemax()])
def test_reading_is_attending(score, normaliser):
    memory = Memory(score=score, normaliser=normaliser)
    d_query = 3 if isinstance(score, scores.General) else 4
    key, value, query = seeded(2, 5, 4), seeded(2, 5, 6, seed=1), seeded(2, 3, d_query, seed=2)
    for t in range(5):
        memory.write(key[:, t : t + 1], value[:, t : t + 1])
        assert len(memory) == t + 1
    options = {"score": score, "normaliser": normaliser}
    readable = seeded(2, 3, 5, seed=3) > 0
    torch.testing.assert_close(memory.read(query), attend(query, key, value, **options))
    torch.testing.assert_close(
        memory(query, mask=readable), attend(query, key, value, mask=readable, **options)
    )
    torch.testing.assert_close(
        memory.look(query).weights() @ value, attend(query, key, value, **options)
    )


def test_values_default_to_the_keys_without_a_copy():
    memory = Memory()
    memory.write(seeded(2, 4))
    memory.write(seeded(4, seed=1))  # a vector alone is one entry
    assert memory.values is memory.keys
    torch.testing.assert_close(memory.read(seeded(1, 4)), attend(seeded(1, 4), *[memory.keys] * 2))
    memory.write(seeded(1, 4, seed=2), torch.zeros(1, 4, dtype=torch.float64))
    assert memory.values.eq(0).all(-1).tolist() == [False, False, False, True]
    torch.testing.assert_close(memory.values[:3], memory.keys[:3])


def test_growing_does_not_move_the_entries_at_every_step():
    memory = Memory()
    addresses = set()
    for _ in range(300):
        memory.write(torch.ones(1, 2))
        addresses.add(memory.keys.data_ptr())
    assert len(memory) == 300
    assert len(addresses) <= 7


def test_what_was_written_stays_as_it_was():
    memory, source = Memory(), torch.ones(2, 2)
    memory.write(source)
    source.zero_()
    assert memory.keys.eq(1).all()
    keys_before = memory.keys
    twin = copy.deepcopy(memory)
    for _ in range(40):
        memory.write(torch.zeros(1, 2))
    twin.write(torch.full((1, 2), 5.0))
    assert keys_before.eq(1).all()
    assert len(keys_before) == 2
    assert memory.keys[2].eq(0).all()
    assert twin.keys[2].eq(5).all()


def test_moving_to_another_precision_between_writes():
    memory = Memory()
    memory.write(seeded(2, 4))
    memory.write(seeded(1, 4))
    memory.float()
    memory.write(seeded(1, 4, seed=1))
    assert memory.keys.dtype == torch.float32
    torch.testing.assert_close(memory.keys[3:], seeded(1, 4, seed=1).float())
    torch.testing.assert_close(memory.keys[:2], seeded(2, 4).float())


def test_gradients_reach_what_was_written_and_what_asks():
    key, value, query = (seeded(3, 4, seed=s).requires_grad_() for s in range(3))

    def reading(key: Tensor, value: Tensor, query: Tensor) -> Tensor:
        memory = Memory()
        for t in range(3):
            memory.write(key[t : t + 1], value[t : t + 1])
        return memory.read(query)

    assert torch.autograd.gradcheck(reading, (key, value, query))


@pytest.mark.parametrize(
    ("trainable", "names"),
    [(False, set()), ("keys", {"key"}), ("values", {"value"}), (True, {"key", "value"})],
)
def test_what_is_trainable_trains_and_the_rest_stays(trainable, names):
    memory = Memory(trainable=trainable)
    memory.write(seeded(4, 3), seeded(4, 2, seed=1))
    memory.write(seeded(1, 3, seed=2), seeded(1, 2, seed=3))
    assert {name.removeprefix("entries.") for name, _ in memory.named_parameters()} == names
    options_before = {"key": memory.keys.clone(), "value": memory.values.clone()}
    if names:
        optimiser = torch.optim.SGD(memory.parameters(), lr=1.0)
        memory.read(seeded(2, 3, seed=4)).square().sum().backward()
        optimiser.step()
    for name, tensor in (("key", memory.keys), ("value", memory.values)):
        assert torch.equal(options_before[name], tensor) == (name not in names)


@pytest.mark.parametrize("trainable", [False, "keys", True])
@pytest.mark.parametrize("entry_count", [0, 2, 4])
def test_a_state_is_loaded_whatever_the_receiver_held(trainable, entry_count):
    for value in (None, seeded(4, 3, seed=1)):
        source = Memory(trainable=trainable)
        source.write(seeded(4, 3), value)
        check_loading(source, trainable, entry_count)


def check_loading(source: Memory, trainable: bool | str, entry_count: int) -> None:
    receiver = nn.ModuleDict({"memory": Memory(trainable=trainable)})
    if entry_count:
        receiver["memory"].write(
            seeded(entry_count, 3, seed=2),
            seeded(entry_count, 3, seed=3),
            payloads=[*range(entry_count)],
        )
    parameters = dict(receiver.named_parameters())
    receiver.load_state_dict({f"memory.{name}": t for name, t in source.state_dict().items()})
    loaded = receiver["memory"]
    assert torch.equal(loaded.keys, source.keys)
    assert torch.equal(loaded.values, source.values)
    # Trained keys change and stay the same entries; other keys are other entries.
    assert loaded.payloads == ([*range(4)] if trainable and entry_count == 4 else [None] * 4)
    if trainable and entry_count:  # an optimiser that knows the old parameter goes on with it
        assert loaded.entries.key is parameters["memory.entries.key"]
    loaded.write(seeded(1, 3, seed=5))
    assert len(loaded) == 5
    assert torch.equal(loaded.keys[:4], source.keys)


def test_a_state_that_does_not_fit_is_refused():
    memory = Memory(d_key=3)
    with pytest.raises(RuntimeError, match="keys are 4 wide: pass keys of width 3"):
        memory.load_state_dict({"entries.key": torch.zeros(2, 4)})
    with pytest.raises(RuntimeError, match=r"keys have shape \(2, 3\), values \(1, 3\)"):
        memory.load_state_dict(
            {"entries.key": torch.zeros(2, 3), "entries.value": torch.zeros(1, 3)}
        )
    assert len(memory) == 0


def test_find_gives_weights_and_the_objects_stored():
    memory = Memory(score=scores.Dot())
    memory.write(torch.tensor([[1.0], [3.0], [2.0]]), payloads=[{"a": 1}, "three", None])
    memory.write(torch.tensor([[3.0]]))
    weights, payloads = memory.find(torch.tensor([1.0]), 3)
    exact = torch.softmax(torch.tensor([1.0, 3.0, 2.0, 3.0]), -1)
    torch.testing.assert_close(weights, exact[[1, 3, 2]])
    assert payloads == ["three", None, None]
    matches = memory.find(torch.tensor([[1.0], [-1.0]]), 10)
    assert matches.positions.tolist() == [[1, 3, 2, 0], [0, 2, 1, 3]]
    assert matches.payloads[1][0] == {"a": 1}
    torch.testing.assert_close(matches.weights.sum(-1), torch.ones(2))


def test_find_by_hard_lookup_still_ranks_the_rest_by_score():
    memory = Memory(score=scores.Dot(), normaliser=Hard())
    memory.write(torch.tensor([[1.0], [3.0], [2.0]]), payloads=["one", "three", "two"])
    weights, payloads = memory.find([1.0], 3)
    assert weights.tolist() == [1, 0, 0]
    assert payloads == ["three", "two", "one"]


def test_an_empty_memory_reads_as_zero_and_says_so_when_looked_up():
    memory = Memory(d_key=4, d_value=6)
    assert memory.read(seeded(2, 3, 4)).shape == (2, 3, 6)
    assert memory.read(seeded(3, 4)).eq(0).all()
    assert Memory().read(seeded(3, 4)).shape == (3, 4)
    weights, payloads = memory.find(seeded(4), 3)
    assert weights.shape == (0,)
    assert payloads == []
    for ask in (lambda: memory[seeded(4)], lambda: memory.look(seeded(1, 4))):
        with pytest.raises(EmptyMemoryError, match="the memory is empty") as caught:
            ask()
        assert not isinstance(caught.value, KeyError)
    memory.write(seeded(0, 4), seeded(0, 6))
    assert memory.read(seeded(3, 4)).eq(0).all()


def test_what_does_not_fit_is_refused_and_nothing_is_written():
    memory = Memory()
    memory.write(seeded(2, 3), seeded(2, 5), payloads=["a", "b"])
    refused = [
        ((seeded(1, 4), seeded(1, 5)), "keys are 4 wide: pass keys of width 3"),
        ((seeded(1, 3),), "values are 3 wide: pass values of width 5"),
        ((seeded(2, 3), seeded(1, 5)), "pass one value for each key"),
        ((seeded(2, 2, 3), seeded(2, 2, 5)), "batch axes"),
        ((seeded(1, 3), seeded(1, 5), ["x", "y"]), "payloads is a list of 2: pass a list of 1"),
        ((seeded(1, 3), seeded(1, 5), "x"), "payloads is a string"),
    ]
    for arguments, message in refused:
        with pytest.raises(ShapeError, match=message):
            memory.write(*arguments)
    assert len(memory) == len(memory.values) == len(memory.payloads) == 2
    with pytest.raises(ValueError, match="no encoder: pass encoder="):
        memory.write("text")
    with pytest.raises(TypeError, match="pass vectors"):
        memory[3]
    with pytest.raises(ValueError, match="k is 0"):
        memory.find(seeded(3), 0)
    with pytest.raises(ValueError, match="trainable is 'all'"):
        Memory(trainable="all")


def test_an_encoder_of_ones_own_may_be_a_module_and_train():
    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(128, 3)

        def forward(self, strings: list[str]) -> list[Tensor]:
            return [self.embedding(torch.tensor([*map(ord, s)])).mean(0) for s in strings]

    torch.manual_seed(0)
    memory = Memory(encoder=Letters())
    memory.write(["ab", "cd"], torch.eye(2))
    memory["ab"][0].backward()
    assert memory.encoder.embedding.weight.grad.ne(0).any()


def test_character_ngrams_are_unit_vectors_of_the_spelling():
    encoder = CharacterNgrams(64)
    vectors = encoder(["Subject", "sUBJECT", "Subjekt", "Regarding", "", "é", "e\u0301", "\ud800"])
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(8))
    likeness = vectors[0] @ vectors.T
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[5], vectors[6])
    assert likeness[1] > likeness[2] > likeness[3]
    assert encoder([]).shape == (0, 64)
    # The same on every machine, so that a saved memory goes on being found.
    counts = torch.tensor([[-1.0, 2.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]])
    torch.testing.assert_close(CharacterNgrams(8, 1, 2)(["ab"]), counts / 8**0.5)
    with pytest.raises(ValueError, match="below the shortest"):
        CharacterNgrams(8, 3, 2)
    with pytest.raises(TypeError, match=r"pass a list of strings, such as \['Subject'\]"):
        encoder("Subject")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_a_query_is_read_in_the_precision_of_the_keys(dtype):
    memory, query = Memory(), torch.randn(2, 3)
    memory.write(torch.randn(20, 3).to(dtype), torch.randn(20, 5).to(dtype))
    reading = memory.read(query.to(dtype)).float()
    for answer in (memory.read(query), memory.read(query, tolerance=0.1).reading):
        assert answer.dtype == torch.float32
        torch.testing.assert_close(answer, reading)
    assert memory.look(query).entropy().shape == (2,)


@pytest.mark.parametrize("key", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("query", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("place", ["in RAM", "in a folder"])
@torch.no_grad()
def test_a_search_and_a_look_take_queries_of_any_precision(tmp_path, key, query, place):
    memory = Memory() if place == "in RAM" else Memory.open(tmp_path / "m", write=True)
    memory.write(4 * torch.eye(3, dtype=key))
    near = 2 * torch.eye(3, dtype=query)[1:2]
    assert memory.find(near, 1).positions.tolist() == [[1]]
    assert memory.look(near).top(1)[1].tolist() == [[1]]


@pytest.mark.parametrize(
    "prepare",
    [
        lambda memory: None,
        lambda memory: memory.write(torch.ones(1, 4), torch.ones(1, 4)),
        lambda memory: memory.write(torch.ones(4), payloads=["one"]),
        lambda memory: memory.find(torch.ones(1, 4)),
        lambda memory: memory.read(torch.ones(1, 4), tolerance=0.1),
        lambda memory: memory.half(),
        lambda memory: memory.load_state_dict(memory.state_dict()),
    ],
    ids=["keys", "values", "payloads", "searched", "coded", "moved", "loaded"],
)
@pytest.mark.parametrize("score", [None, "cosine"])
@pytest.mark.parametrize("trainable", [False, "values"])
def test_a_vector_is_written_as_a_row_is(prepare, score, trainable):
    alone, rows = (Memory(score=score, trainable=trainable) for _ in range(2))
    for step in range(40):
        key = torch.randn(4)
        for each, entry in ((alone, key), (rows, key[None])):
            each.write(entry)
            if step == 20:
                prepare(each)
    for vector in (torch.arange(4), key.double(), key.bfloat16(), key.repeat(2)[::2]):
        alone.write(vector)
        rows.write(vector[None])
    assert alone.keys.dtype == rows.keys.dtype
    assert torch.equal(alone.keys, rows.keys)
    assert torch.equal(alone.values, rows.values)
    assert alone.payloads == rows.payloads
    query = torch.randn(1, 4)
    torch.testing.assert_close(alone.read(query), rows.read(query))
    assert torch.equal(alone.find(query).positions, rows.find(query).positions)
    for misfit in (torch.ones(1), torch.ones(5), torch.ones(())):
        with pytest.raises((ShapeError, TypeError)):
            alone.write(misfit)
    assert len(alone) == len(rows)
    key.requires_grad_()
    alone.write(key)
    if not trainable:
        assert alone.keys.requires_grad
