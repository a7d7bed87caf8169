"""Tensors that are not plain: read as what they mean, or listed in `unseen`; a look never keeps their class."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import CLOSE, Fused, by_hand, masked
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import regard


class Tagged(torch.Tensor):
    """A subclass with numbers, which computes as torch does."""


class Declared(nn.Module):
    def forward(self, query, key, **how):
        regard.declare(query, key, **how)
        return query


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 4, 3, 8), torch.randn(2, 4, 6, 8)


BIASES = {
    "lower right": (causal_lower_right(3, 6), torch.ones(3, 6).tril(3)),
    "upper left": (causal_upper_left(3, 6), torch.ones(3, 6).tril()),
    "upper left of other lengths": (causal_upper_left(2, 2), torch.ones(3, 6).tril()),
}


@pytest.mark.parametrize(("bias", "readable"), BIASES.values(), ids=BIASES)
def test_causal_biases_of_torch_are_their_masks(pair, bias, readable):
    query, key = pair
    model = Fused()
    with regard.watch(model) as attentions:
        output = model(query, key, attn_mask=bias)
    (name,) = attentions
    weights = attentions[name].weights()
    assert type(weights) is torch.Tensor
    torch.testing.assert_close(weights, by_hand(query, key, masked(readable.bool())), **CLOSE)
    with regard.change(model, {"*": regard.edits.Scale(1.0)}) as change:
        changed_model = model(query, key, attn_mask=bias)
    torch.testing.assert_close(changed_model, output, **CLOSE)
    assert type(changed_model) is type(change.weights(name)) is torch.Tensor


def test_a_causal_bias_for_other_lengths_is_listed(pair):
    query, key = pair
    model = Fused()
    reason = r"causal_lower_right\(1, 6\) for 3 queries and 6"
    with pytest.warns(RuntimeWarning, match=reason), regard.watch(model) as attentions:
        model(query, key, attn_mask=causal_lower_right(1, 6))
    assert "" in attentions.unseen


def nested(entries, layout):
    """(heads, length, width) of each entry; torch's jagged ones are ragged in their second axis first."""
    if layout is torch.strided:
        return torch.nested.nested_tensor(entries)
    turned = [each.transpose(0, 1) for each in entries]
    return torch.nested.nested_tensor(turned, layout=layout).transpose(1, 2)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_are_read_as_padded_sequences(layout):
    torch.manual_seed(0)
    lengths = [(4, 2), (1, 3), (2, 2)]
    queries, keys = ([torch.randn(2, pair[at], 8) for pair in lengths] for at in (0, 1))
    query, key = (nested(each, layout) for each in (queries, keys))
    model = Fused()
    with regard.watch(model) as attentions:
        output = model(query, key)
    (name,) = attentions
    weights = attentions[name].weights()
    assert type(weights) is torch.Tensor
    assert tuple(weights.shape) == (3, 2, 4, 3)
    for entry, (of, length) in enumerate(lengths):
        expected = by_hand(queries[entry], keys[entry])
        torch.testing.assert_close(weights[entry, :, :of, :length], expected, **CLOSE)
        torch.testing.assert_close(expected @ keys[entry], output.unbind()[entry], **CLOSE)
    assert float(weights.sum()) == pytest.approx(2 * (4 + 1 + 2), abs=1e-4)
    assert attentions.table().heads[0].entropy > 0
    edits = {"*": regard.edits.Scale(1.0)}
    with pytest.raises(regard.WatchError, match="nested"), regard.change(model, edits):
        model(query, key)


def fake(tensor: torch.Tensor) -> torch.Tensor:
    return FakeTensorMode(allow_non_fake_inputs=True).from_tensor(tensor)


UNREADABLE = {
    "fake": (fake, "its query is a FakeTensor"),
    "meta": (lambda tensor: tensor.to("meta"), "its query is a tensor of meta"),
    "functional": (torch._to_functional_tensor, "its query is a tensor of a transform"),
    "sparse": (
        lambda tensor: tensor.to_sparse(),
        "its query is a tensor of layout torch.sparse_coo",
    ),
    "quantized": (
        lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
        "its query is a quantized tensor",
    ),
    "nested": (
        lambda tensor: torch.nested.nested_tensor(list(tensor)),
        "its query is a nested tensor",
    ),
}


@pytest.mark.parametrize(("convert", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_tensors_without_readable_numbers_are_listed(pair, convert, reason):
    query, key = map(convert, pair)
    model = Declared()
    with (
        pytest.warns(RuntimeWarning, match="has seen no attention"),
        regard.watch(model) as attentions,
    ):
        model(query, key)
    assert reason in attentions.unseen[""]
    with pytest.raises(regard.WatchError):
        attentions["self"]


def test_planes_without_readable_numbers_are_listed(pair):
    query, key = pair
    for options in (
        {"mask": torch.ones(3, 6).bool().to_sparse()},
        {"bias": fake(torch.ones(3, 6))},
    ):
        model = Declared()
        with pytest.warns(RuntimeWarning), regard.watch(model) as attentions:
            model(query, key, **options)
        assert f"its {next(iter(options))} is a" in attentions.unseen[""]


@pytest.mark.parametrize("model", [Fused(), Declared()])
def test_looks_do_not_keep_a_subclass(pair, model):
    query, key = (each.as_subclass(Tagged) for each in pair)
    with regard.watch(model) as attentions:
        model(query, key)
    (name,) = attentions
    assert type(attentions[name].weights()) is type(attentions[name].entropy()) is torch.Tensor
    torch.testing.assert_close(attentions[name].weights(), by_hand(*pair), **CLOSE)
    query.mul_(2)  # the plain tensor has the memory of the subclass, and its version
    with pytest.raises(regard.WatchError, match="changed in place"):
        attentions.parts(name)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_read_in_float32(pair, dtype):
    query, key = (each.to(dtype) for each in pair)
    expected = by_hand(query.float(), key.float())
    declared, fused = Declared(), Fused()
    with regard.watch(declared) as attentions:
        declared(query, key)
    with regard.watch(fused, dtype=dtype) as copied:
        fused(*pair)
    for looks in (attentions, copied):
        (name,) = looks
        torch.testing.assert_close(looks[name].weights(), expected, **CLOSE)
