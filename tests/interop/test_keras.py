"""Keras' attention layers as ours and back: its own layers answer the same, and so do its equations."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.interop.keras import KerasLayer, from_keras, to_keras

QUERY, KEY, VALUE = 6, 6, 5


@pytest.fixture(scope="module")
def keras(tmp_path_factory) -> ModuleType:
    """Keras computing with torch, the one backend that is here; its settings file is not the person's."""
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("KERAS_BACKEND", "torch")
        surroundings.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        return pytest.importorskip("keras")


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sequences(d_query: int = QUERY, d_key: int = KEY, d_value: int = VALUE) -> tuple[Tensor, ...]:
    return seeded(2, 3, d_query), seeded(2, 4, d_key, seed=1), seeded(2, 4, d_value, seed=2)


def filled(layer: Any) -> Any:
    draw = np.random.default_rng(0)
    layer.set_weights([draw.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def same(actual: Tensor, expected: Tensor) -> None:
    """To what single precision holds: Keras casts what it is given on the way."""
    torch.testing.assert_close(actual.to(expected.dtype), expected, atol=1e-5, rtol=1e-5)


def exact(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


ATTENTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "dot": ("Attention", {}),
    "scaled": ("Attention", {"use_scale": True}),
    "concat": ("Attention", {"score_mode": "concat"}),
    "scaled concat": ("Attention", {"score_mode": "concat", "use_scale": True}),
    "additive": ("AdditiveAttention", {}),
    "unscaled additive": ("AdditiveAttention", {"use_scale": False}),
}


@pytest.mark.parametrize(("kind", "config"), ATTENTIONS.values(), ids=ATTENTIONS)
def test_scores_there_and_back(keras, kind, config):
    query, key, value = sequences()
    inputs = [query, value, key]
    theirs = getattr(keras.layers, kind)(**config, dtype="float64")
    theirs.build([each.shape for each in inputs])
    filled(theirs)
    readable = torch.tensor([[True, True, True, False], [True, False, False, False]])
    expected, weights = theirs(inputs, mask=[None, readable], return_attention_scores=True)
    ours = from_keras(theirs)
    converted = from_keras(KerasLayer(kind, {**config, "width": KEY}, theirs.get_weights()))
    assert str(converted) == str(ours)
    output, look = regard.read(query, key, value, score=ours, mask=readable[:, None])
    same(output, expected)
    same(look.weights(), weights)
    back = to_keras(ours, width=KEY).build(dtype="float64")
    repetition = back(inputs, mask=[None, readable])
    same(repetition, expected)


HEADS: dict[str, dict[str, Any]] = {
    "plain": {"num_heads": 2, "key_dim": 3},
    "no bias": {"num_heads": 2, "key_dim": 3, "use_bias": False},
    "widths": {"num_heads": 3, "key_dim": 4, "value_dim": 5, "output_shape": 7},
}


@pytest.mark.parametrize("config", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("d_key", [6, 8])
def test_heads_there_and_back(keras, config, d_key):
    query, key, value = sequences(d_key=d_key)
    theirs = keras.layers.MultiHeadAttention(**config, dtype="float64")
    theirs.build(query.shape, value.shape, key.shape)
    filled(theirs)
    readable = seeded(2, 3, 4, seed=3) > -1
    readable[..., 0] = True
    options = {"query": query, "value": value, "key": key}
    expected, weights = theirs(**options, attention_mask=readable, return_attention_scores=True)
    ours = from_keras(theirs)
    output, look = ours.read(query, key, value, mask=readable)
    same(output, expected)
    same(look.weights(), weights)
    back = to_keras(ours).build(dtype="float64")
    for get_weight, weight in zip(back.get_weights(), theirs.get_weights(), strict=True):
        assert np.array_equal(get_weight, weight)


@pytest.mark.parametrize("use_bias", [True, False])
def test_grouped_heads_there_and_back(keras, use_bias):
    query, key, _ = sequences()
    theirs = keras.layers.GroupQueryAttention(
        head_dim=3, num_query_heads=4, num_key_value_heads=2, use_bias=use_bias, dtype="float64"
    )
    theirs.build(query.shape, key.shape)
    filled(theirs)
    expected = theirs(query, key, use_causal_mask=True)
    ours = from_keras(theirs)
    same(ours(query, key, mask=masks.causal(align="start")), expected)
    assert ours.key_heads == 2
    back = to_keras(ours).build(dtype="float64")
    for get_weight, weight in zip(back.get_weights(), theirs.get_weights(), strict=True):
        assert np.array_equal(get_weight, weight)
    with pytest.raises(ValueError, match="the 2 heads of a group differ"):
        to_keras(ours, key_heads=1)
    with pytest.raises(ValueError, match="pass a divisor of 2, the heads of its keys"):
        to_keras(ours, key_heads=4)


def random_arrays(*shapes: tuple[int, ...]) -> list[Any]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=shape) for shape in shapes]


def test_heads_are_the_equations_of_keras_without_keras():
    query, key, value = sequences(d_key=8)
    weights = random_arrays(
        (6, 3, 4), (3, 4), (8, 3, 4), (3, 4), (5, 3, 5), (3, 5), (3, 5, 7), (7,)
    )
    wq, bq, wk, bk, wv, bv, wo, bo = (torch.tensor(each) for each in weights)
    q = torch.einsum("abc,cde->abde", query, wq) + bq
    k = torch.einsum("abc,cde->abde", key, wk) + bk
    v = torch.einsum("abc,cde->abde", value, wv) + bv
    look = torch.softmax(torch.einsum("aecd,abcd->acbe", k, q) / 2, -1)
    expected = torch.einsum("abcd,cde->abe", torch.einsum("acbe,aecd->abcd", look, v), wo) + bo
    config = {"num_heads": 3, "key_dim": 4, "value_dim": 5, "output_shape": 7}
    ours = from_keras(KerasLayer("MultiHeadAttention", config, weights))
    exact(ours(query, key, value), expected)
    back = to_keras(ours)
    assert all(map(np.array_equal, back.weights, weights))


def test_grouped_heads_are_the_equations_of_keras_without_keras():
    query, key, _ = sequences()
    weights = random_arrays((6, 4, 3), (6, 2, 3), (6, 2, 3), (4, 3, 6))
    wq, wk, wv, wo = (torch.tensor(each) for each in weights)
    q = torch.einsum("bqm,muh->bquh", query, wq)
    k = torch.einsum("bkm,mvh->bkvh", key, wk).repeat_interleave(2, 2)
    v = torch.einsum("bkm,mvh->bkvh", key, wv).repeat_interleave(2, 2)
    look = torch.softmax(torch.einsum("bquh,bkuh->buqk", q, k) / 3**0.5, -1)
    expected = torch.einsum("bquh,uhm->bqm", torch.einsum("buqk,bkuh->bquh", look, v), wo)
    config = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2, "use_bias": False}
    ours = from_keras(KerasLayer("GroupedQueryAttention", config, weights))
    exact(ours(query, key), expected)
    back = to_keras(ours, key_heads=2)
    assert back.config == {**config, "dropout": 0.0}
    assert all(map(np.array_equal, back.weights, weights))


def test_scores_are_the_equations_of_keras_without_keras():
    query, key, _ = sequences()
    added = query[:, :, None] + key[:, None]
    scale, weight, vector = np.array(0.7), np.array(1.3), random_arrays((6,))[0]
    concat = {"score_mode": "concat", "width": 6}
    layers = [
        (KerasLayer("Attention", {"use_scale": True}, [scale]), 0.7 * query @ key.mT),
        (KerasLayer("Attention", concat, [weight]), 1.3 * added.tanh().sum(-1)),
        (
            KerasLayer("Attention", {**concat, "use_scale": True}, [scale, weight]),
            1.3 * (0.7 * added).tanh().sum(-1),
        ),
        (KerasLayer("AdditiveAttention", {}, [vector]), added.tanh() @ torch.tensor(vector)),
    ]
    for layer, expected in layers:
        exact(from_keras(layer)(query, key), expected)
    back = to_keras(from_keras(layers[2][0]))
    assert (back.kind, [float(each) for each in back.weights]) == ("Attention", [0.7, 1.3])


def attention(**options: Any) -> regard.MultiHeadAttention:
    return regard.MultiHeadAttention(8, 2, **options)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (KerasLayer("MultiHeadAttention", {"use_gate": True}, []), "ours has no gate"),
        (KerasLayer("MultiHeadAttention", {"sliding_window": 3}, []), r"masks.band\(2, 2\)"),
        (KerasLayer("MultiHeadAttention", {"attention_axes": (1, 2)}, []), "the one axis before"),
        (KerasLayer("MultiHeadAttention", {"output_shape": (2, 3)}, []), "one axis of output"),
        (KerasLayer("MultiHeadAttention", {}, []), "has 0 weights, .* asks for 8: call or build"),
        (
            KerasLayer("Attention", {"score_mode": "concat"}, [np.float32(1)]),
            "no weight of the layer has the width",
        ),
        (
            KerasLayer("AdditiveAttention", {"use_scale": False}, []),
            "no weight of the layer has the width",
        ),
    ],
)
def test_what_has_no_counterpart_here_is_refused(layer, reason):
    with pytest.raises(ValueError, match=reason):
        from_keras(layer)


@pytest.mark.parametrize(
    ("ours", "options", "reason"),
    [
        (scores.Dot(), {}, "pass width="),
        (scores.Additive(4, 4, 4), {}, "it projects queries and keys"),
        (scores.Additive(4, 5, 6), {}, "it projects queries and keys"),
        (attention(score=scores.Dot()), {}, "scaled dot products only"),
        (attention(normaliser=normalisers.Sparsemax()), {}, "softmax only"),
        (attention(merge="sum"), {}, "heads side by side"),
        (attention(), {"key_heads": 3}, "pass a divisor of 2"),
        (attention(d_output=9), {"key_heads": 1}, "the width they got"),
        (attention(qk_norm="layer"), {}, "normalises queries and keys"),
    ],
)
def test_what_has_no_counterpart_there_is_refused(ours, options, reason):
    with pytest.raises(ValueError, match=reason):
        to_keras(ours, **options)


def test_layers_that_compute_something_else_are_refused(keras):
    class MultiHeadAttention(keras.layers.MultiHeadAttention):
        def call(self, query, value, key=None, **how):
            return 2 * super().call(query, value, key, **how)

    x = seeded(1, 3, QUERY)
    for attention_class in (MultiHeadAttention, keras.layers.MultiHeadAttention):
        layer = attention_class(2, 4)
        layer(x, x)
        if attention_class is not MultiHeadAttention:
            layer.call = lambda query, value, key=None: query
        with pytest.raises(ValueError, match=r"overrides call|another call than its class"):
            from_keras(layer)


def test_a_subclass_that_overrides_nothing_is_converted(keras):
    class Mine(keras.layers.MultiHeadAttention):
        pass

    x = seeded(1, 3, QUERY).float()
    layer = Mine(2, 4)
    expected = layer(x, x)
    assert torch.allclose(from_keras(layer)(x), torch.as_tensor(expected), atol=1e-5)


def test_other_things_are_refused():
    with pytest.raises(TypeError, match="got a Tensor: known are Attention"):
        from_keras(torch.zeros(1))
    with pytest.raises(TypeError, match="got a int: known are Attention"):
        from_keras(5)
    with pytest.raises(TypeError, match="got a Cosine"):
        to_keras(scores.Cosine())


def test_arrays_need_no_keras():
    program = (
        "import sys; sys.modules['keras'] = None\n"
        "import regard\n"
        "from regard.interop.keras import from_keras, to_keras\n"
        "print(from_keras(to_keras(regard.MultiHeadAttention(8, 2))).heads)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "2\n", result.stderr
