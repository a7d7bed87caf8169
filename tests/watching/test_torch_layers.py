"""nn.MultiheadAttention and nn.Transformer's layers, fast paths included."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import CLOSE, operators
from torch import nn

import regard

WIDTH, HEADS, LENGTH = 16, 4, 7
PADDED = torch.zeros(2, LENGTH, dtype=torch.bool)
PADDED[1, 5:] = True
LATER = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, LENGTH, WIDTH)


def attention(**how) -> nn.MultiheadAttention:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True, **how}).eval()
    for parameter in layer.parameters():  # torch's biases begin as zeros
        nn.init.normal_(parameter, std=0.4)
    return layer


@pytest.mark.parametrize(
    ("masks", "weights"),
    [
        ({}, True),
        ({}, False),
        ({"key_padding_mask": PADDED}, True),
        ({"attn_mask": LATER}, False),
        ({"attn_mask": LATER, "key_padding_mask": PADDED}, True),
    ],
)
def test_the_fast_path_of_an_attention_runs_as_it_does_unwatched(x, masks, weights):
    model = attention()
    options = {**masks, "need_weights": weights, "average_attn_weights": False}
    with torch.no_grad():
        (plain, _), operators_before = operators(lambda: model(x, x, x, **options))
        with regard.watch(model) as attentions:
            (watched, _), during = operators(lambda: model(x, x, x, **options))
        _, expected = model(x, x, x, **options | {"need_weights": True})
    assert "aten::_native_multi_head_attention" in operators_before
    assert during == operators_before
    assert torch.equal(watched, plain)
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)
    assert attentions.kind("self") == ("causal" if "attn_mask" in masks else "self")


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_fast_path_of_an_encoder_runs_as_it_does_unwatched(x, nested, norm_first, padded):
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 32, batch_first=True, norm_first=norm_first, dropout=0.0
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    options = {"src_key_padding_mask": PADDED} if padded else {}
    with torch.no_grad():
        plain, operators_before = operators(lambda: model(x, **options))
        with regard.watch(model) as attentions:
            watched, during = operators(lambda: model(x, **options))
    assert operators_before.count("aten::_transformer_encoder_layer_fwd") == 2
    assert during == operators_before
    assert torch.equal(watched, plain)
    with regard.watch(model) as slow:  # gradients turn the fast path off
        model(x, **options)
    assert list(attentions) == list(slow) == ["layer.0.self", "layer.1.self"]
    for name in attentions:
        fast_weights, slow_weights = attentions[name].weights(), slow[name].weights().detach()
        if padded:  # what padded queries read is the model's own affair
            fast_weights, slow_weights = fast_weights[:, :, :5], slow_weights[:, :, :5]
        torch.testing.assert_close(fast_weights, slow_weights, **CLOSE)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_first": False},
        {"bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"add_bias_kv": True, "add_zero_attn": True},
        {"kdim": 10, "vdim": 12},
    ],
)
@pytest.mark.parametrize("weights", [True, False])
def test_an_attention_of_another_sequence_agrees_with_its_own_weights(x, settings, weights):
    model = attention(**settings)
    memory = torch.randn(2, 5, settings.get("kdim", WIDTH))
    value = torch.randn(2, 5, settings.get("vdim", WIDTH)) if "vdim" in settings else memory
    arguments = (x, memory, value)
    if not settings.get("batch_first", True):
        arguments = tuple(each.transpose(0, 1) for each in arguments)
    padded, distance = torch.zeros(2, 5, dtype=torch.bool), torch.randn(LENGTH, 5)
    padded[0, 4:] = True
    blocked = distance > 1
    options = {"key_padding_mask": padded, "attn_mask": blocked}
    with regard.watch(model) as attentions:
        model(*arguments, **options, need_weights=weights)
    _, expected = model(*arguments, **options, average_attn_weights=False)
    torch.testing.assert_close(attentions["cross"].weights(), expected.detach(), **CLOSE)
    assert attentions.kind("cross") == "cross"


def test_additive_masks_and_unbatched_sequences(x):
    model = attention()
    slope = -torch.arange(LENGTH).float().sub(torch.arange(LENGTH)[:, None]).abs()
    with regard.watch(model) as attentions:
        _, expected = model(x[0], x[0], x[0], attn_mask=slope, average_attn_weights=False)
    torch.testing.assert_close(attentions["self"].weights()[0], expected.detach(), **CLOSE)


def test_the_three_attentions_of_a_transformer_are_told_apart(x):
    torch.manual_seed(3)
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 32, batch_first=True).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    with torch.no_grad():
        plain, operators_before = operators(lambda: model(x, x, tgt_mask=mask, tgt_is_causal=True))
        with regard.watch(model) as attentions:
            watched, during = operators(lambda: model(x, x, tgt_mask=mask, tgt_is_causal=True))
    assert torch.equal(watched, plain)
    assert during == operators_before
    assert {name: attentions.kind(name) for name in attentions} == {
        "encoder.0.self": "self",
        "encoder.1.self": "self",
        "decoder.0.self": "causal",
        "decoder.0.cross": "cross",
        "decoder.1.self": "causal",
        "decoder.1.cross": "cross",
    }
    assert attentions.path("decoder.1.cross") == "decoder.layers.1.multihead_attn"
    assert attentions["decoder.1.cross"] is attentions["decoder.layers.1.multihead_attn"]
    assert attentions["decoder.0.causal"].argmax()[..., 0].eq(0).all()


def test_a_layer_written_over_its_input_is_refused_and_with_a_copy_seen(x):
    model = attention()
    with torch.no_grad():
        _, expected = model(x, x, x, average_attn_weights=False)
        for copy in (False, True):
            states = x.clone()
            with regard.watch(model, copy=copy) as attentions:
                states += model(states, states, states)[0]
            if not copy:
                with pytest.raises(regard.WatchError, match="copy=True"):
                    attentions["self"].entropy()
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("batch_axes", [{}, {"attn_mask": LATER}])
def test_an_unbatched_attention_with_padding_can_be_read(x, gradients, batch_axes):
    model, options = attention(), {"key_padding_mask": PADDED[1], "average_attn_weights": False}
    with torch.set_grad_enabled(gradients), regard.watch(model) as attentions:
        _, expected = model(x[1], x[1], x[1], **options, **batch_axes)
    torch.testing.assert_close(attentions["self"].weights()[0], expected, **CLOSE)
    assert len(attentions.table()) == HEADS


def test_padding_of_nested_tensors_reads_nothing(x):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=True).eval()
    with torch.no_grad(), regard.watch(model) as attentions:
        model(x, src_key_padding_mask=PADDED)
    read = attentions["layer.0.self"].weights().sum(-1)
    expected = (~PADDED).float()[:, None].expand_as(read)
    torch.testing.assert_close(read, expected, **CLOSE)
