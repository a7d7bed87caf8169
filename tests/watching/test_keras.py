"""Keras models on torch: their layers are called by their names, which torch does not register."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import torch

import regard

X, MEMORY = torch.randn(2, 6, 8), torch.randn(2, 4, 8)


@pytest.fixture(scope="module")
def keras(tmp_path_factory) -> ModuleType:
    """Keras on torch; the settings file of the person who runs the tests is not read."""
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("KERAS_BACKEND", "torch")
        surroundings.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        return pytest.importorskip("keras")


def watched(model, inputs):
    """What a watch saw of a run, whose outputs are those of an unwatched one to the bit."""
    expected = model(inputs)
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        with regard.watch(model) as attentions:
            assert torch.equal(model(inputs), expected)
    return attentions, [
        str(each.message) for each in caught_warnings if each.category is RuntimeWarning
    ]


def test_the_attentions_of_a_functional_model_are_told_apart(keras):
    layers = keras.layers
    x, memory = layers.Input((6, 8)), layers.Input((4, 8))
    self_attention = layers.MultiHeadAttention(2, 4, name="own")(x, x, use_causal_mask=True)
    across = layers.MultiHeadAttention(2, 4, name="across")(self_attention, memory)
    attentions, messages = watched(keras.Model([x, memory], across), [X, MEMORY])
    assert not messages
    assert {name: (attentions.kind(name), attentions[name].shape) for name in attentions} == {
        "own.self": ("causal", (2, 2, 6, 6)),
        "across.cross": ("cross", (2, 2, 6, 4)),
    }
    assert len(attentions.table()) == 4


def test_attentions_that_cannot_be_seen_are_listed_by_name(keras):
    layers = keras.layers
    x, memory = layers.Input((6, 8)), layers.Input((4, 8))
    first_layer = layers.Attention(name="first")([x, memory])
    second = layers.AdditiveAttention(name="second")([first_layer, memory])
    scored, _ = layers.MultiHeadAttention(2, 4, name="third")(
        second, memory, return_attention_scores=True
    )
    attentions, messages = watched(keras.Model([x, memory], scored), [X, MEMORY])
    assert list(attentions.unseen) == ["first", "second", "third"]
    assert all("regard.declare" in why for why in attentions.unseen.values())
    assert len(messages) == 1


def test_layers_in_a_list_and_in_a_sequential_model_have_names(keras):
    layers = keras.layers

    class Blocks(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.blocks = [layers.MultiHeadAttention(2, 4) for _ in range(2)]

        def build(self, shape):
            for block in self.blocks:
                block.build(shape, shape)

        def call(self, x):
            for block in self.blocks:
                x = block(x, x)
            return x

    attentions, messages = watched(keras.Sequential([layers.Input((6, 8)), Blocks()]), X)
    assert list(attentions) == ["layer.0.self", "layer.1.self"]
    assert not messages
