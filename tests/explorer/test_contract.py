"""The bytes that the front end reads: every number of a look is in them, where the header says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.explorer.bundles import Bundle

import regard
from regard.explorer import contract
from regard.explorer.contract import LARGEST, Attention, Scene, Sequence, pack


def parse(bundle: bytes):
    """The header, and a function that gives a buffer."""
    read = Bundle(bundle)
    return read.header, read.buffer


def scene(heads=3, queries=5, keys=7, mask=None) -> Scene:
    generator = torch.Generator().manual_seed(heads)
    query = torch.randn(heads, queries, 8, generator=generator)
    key = torch.randn(heads, keys, 8, generator=generator)
    look = regard.look(query, key, mask=mask)
    sequences = [
        Sequence("rows", [f"r{i}" for i in range(queries)]),
        Sequence("columns", [f"c{j}" for j in range(keys)]),
    ]
    return Scene("a title", sequences, [Attention("decoder.0.cross", "cross", look, 0, 1)])


def test_small_attentions_are_sent_whole():
    actual_scene = scene()
    header, buffer = parse(pack(actual_scene))
    (one,) = header["attentions"]
    assert (one["shape"], one["heads"], one["kind"]) == ([3, 5, 7], [0, 1, 2], "cross")
    sent = buffer(one["weights"]["buffer"], "<f2").reshape(one["shape"])
    torch.testing.assert_close(
        torch.from_numpy(sent.astype("f4")),
        actual_scene.attentions[0].look.weights(),
        atol=5e-4,
        rtol=0,
    )


def test_masked_cells_are_not_numbers():
    header, buffer = parse(pack(scene(mask=regard.masks.causal(align="end"))))
    (one,) = header["attentions"]
    sent = buffer(one["weights"]["buffer"], "<f2").reshape(one["shape"])
    readable = np.tri(5, 7, 2, dtype=bool)
    assert np.array_equal(~np.isnan(sent), np.broadcast_to(readable, sent.shape))


def test_large_attentions_are_sent_as_a_picture_and_the_largest_of_each_row():
    actual_scene = scene(2, 300, 200)
    look = actual_scene.attentions[0].look
    header, buffer = parse(pack(actual_scene, most_weights=1000))
    (one,) = header["attentions"]
    assert "weights" not in one
    picture, top = one["map"], one["top"]
    drawn = buffer(picture["buffer"], "u1").reshape(2, picture["height"], picture["width"])
    expected = look.map(picture["height"], picture["width"], reduce="max")
    scaled = torch.from_numpy(drawn.astype("f4")) * torch.tensor(picture["peaks"])[:, None, None]
    torch.testing.assert_close(scaled / 254, expected, atol=1 / 254, rtol=0)
    weights, keys = look.top(LARGEST)
    assert np.array_equal(buffer(top["keys"], "<i4"), keys.numpy().ravel().astype("i4"))
    assert np.allclose(buffer(top["weights"], "<f2"), weights.numpy().ravel(), atol=5e-4)


def test_a_picture_says_which_bins_are_masked():
    header, buffer = parse(
        pack(scene(2, 300, 300, regard.masks.causal(align="end")), most_weights=1000)
    )
    (one,) = header["attentions"]
    drawn = buffer(one["map"]["buffer"], "u1").reshape(2, 128, 128)
    first_positions = np.arange(129) * 300 // 128
    masked = (
        first_positions[None, :-1] >= first_positions[1:, None]
    )  # the first key of a bin and its last query
    assert np.array_equal(drawn == 255, np.broadcast_to(masked, drawn.shape))
    assert drawn[drawn < 255].max() == 254


def test_a_file_of_many_rows_has_fewer_keys_of_each_and_a_server_sends_nothing_yet():
    actual_scene = scene(2, 150_000, 10)
    header, _ = parse(pack(actual_scene, most_weights=1000))
    assert header["attentions"][0]["top"]["count"] == 2
    header, _ = parse(pack(actual_scene, run="id", most_weights=1000))
    assert not {"map", "top", "measures", "weights"} & header["attentions"][0].keys()


def test_measures_of_known_heads():
    identity = torch.eye(6)[None] * 100
    before = identity.roll(-1, -1)  # query i has the vector of key i - 1
    look = regard.look(torch.cat([identity, before]), torch.eye(6))
    attention = Attention("encoder.0.self", "self", look, 0, 0)
    header, _ = parse(pack(Scene("", [Sequence("tokens", list("abcdef"))], [attention])))
    measures = header["attentions"][0]["measures"]
    assert measures["diagonal"] == pytest.approx([1, 0], abs=1e-4)
    assert measures["previous"][1] == pytest.approx(5 / 6, abs=1e-4)
    assert measures["entropy"] == pytest.approx([0, 0], abs=1e-3)


def test_measures_of_a_deep_attention_come_from_some_of_its_queries(monkeypatch):
    actual_scene = scene(2, 4000, 50)
    exact = contract.measured(actual_scene.attentions[0], actual_scene)
    monkeypatch.setattr(contract, "DEEP", 1)
    monkeypatch.setattr(contract, "SAMPLED", 2 * 50 * 1000)
    sampled = contract.measured(actual_scene.attentions[0], actual_scene)
    assert "sampled" not in exact
    assert sampled["sampled"] == 1000
    assert sampled["measures"].keys() == exact["measures"].keys()
    for name, values in exact["measures"].items():
        assert sampled["measures"][name] == pytest.approx(values, rel=0.1), name
        assert sampled["measures"][name] != values, name


def test_a_file_has_the_rollout_of_its_layers_or_says_why_not():
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(3, 9, 4, generator=generator) for _ in range(2)]
    looks = [regard.look(each, each, mask="causal") for each in vectors]
    attentions = [
        Attention(f"layer.{number}.self", "causal", look, 0, 0) for number, look in enumerate(looks)
    ]
    layers = Scene("", [Sequence("tokens", list("abcdefghi"))], attentions)
    header, buffer = parse(pack(layers))
    (rollout,) = header["rollouts"]
    steps = [(look.weights().mean(0) + torch.eye(9)) / 2 for look in looks]
    drawn = buffer(rollout["buffer"], "<f2").reshape(9, 9)
    np.testing.assert_allclose(drawn, steps[1] @ steps[0], atol=1e-3)
    header, _ = parse(pack(layers, most_weights=1))
    assert "a server" in header["rollouts"][0]["objection"]
    header, _ = parse(pack(layers, run="id", most_weights=1))
    assert header["rollouts"][0] == {"of": ["layer.0.self", "layer.1.self"]}


def test_words_are_joined_from_pieces():
    sequence = Sequence.of_pieces("source", ["▁caf", "<0xC3>", "<0xA9>", "</s>"])
    assert sequence.words == [(0, 3, "café"), (3, 4, "</s>")]


def test_a_scene_holds_the_tree_of_its_search():
    from regard.explorer.translating import explore
    from regard.translation.translator import Translator

    translator = Translator.open("es-en")
    made, translation = explore(translator, "La hermana de mi madre vive en una casa grande.")
    nodes = made.translation["beam"]
    first = next(node for node in nodes if node["parent"] == -1)
    assert (first["piece"], first["prefix"]) == ("▁M", "My")  # a whole word
    ended = [node for node in nodes if node["kept"] and node["piece"] == "</s>"]
    assert translation.text in {node["prefix"] for node in ended}
    dropped = next(node for node in nodes if not node["kept"] and node["piece"].endswith("great"))
    again, forced = explore(translator, translation.source, dropped["prefix"])
    assert forced.text.startswith(dropped["prefix"])
    assert again.translation["beam"]
