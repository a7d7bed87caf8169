"""Attention functions of other libraries, registered from outside."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import regard
from regard.watching import CapturedCall, register


def attention(q, k, v, hidden=None):
    """Attention over (batch, positions, heads, width); True = hidden."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = torch.softmax(scores, -1)
    return torch.einsum("bhij,bjhd->bihd", weights, v), weights


def adapter(q, k, v, hidden=None):
    mask = None if hidden is None else ~hidden
    query, key = q.transpose(1, 2), k.transpose(1, 2)
    return CapturedCall(query, key, score=regard.scores.Dot(), mask=mask)


def read(weights, q, k, v, hidden=None):
    return torch.einsum("bhij,bjhd->bihd", weights, v), weights


class Layer(nn.Module):
    def forward(self, x, hidden=None):
        return sys.modules["attention_library"].attention(x, x, x, hidden)


@pytest.fixture
def library(monkeypatch):
    """A library that is imported, and whose registrations are forgotten after the test."""
    from regard.watching import interception

    module = ModuleType("attention_library")
    module.attention = attention
    monkeypatch.setitem(sys.modules, "attention_library", module)
    monkeypatch.setattr(interception, "WRAPPERS", dict(interception.WRAPPERS))
    monkeypatch.setattr(interception, "ADAPTERS", dict(interception.ADAPTERS))
    monkeypatch.setattr(interception, "ORIGINALS", {})
    return module


@pytest.mark.parametrize("hidden", [None, torch.ones(5, 5).triu(1).bool()], ids=["all", "causal"])
def test_a_registered_function_is_seen_with_its_own_weights(library, hidden):
    register("attention_library.attention", adapter, read=read)
    model, x = Layer(), torch.randn(2, 5, 3, 4)
    with regard.watch(model) as attentions:
        _, weights = model(x, hidden)
    assert torch.allclose(attentions["self"].weights(), weights, atol=1e-6)
    assert attentions.kind("self") == ("self" if hidden is None else "causal")
    assert library.attention is attention  # the watch ended


def test_a_change_edits_it(library):
    register("attention_library.attention", adapter, read=read)
    x = torch.randn(1, 5, 3, 4)
    with regard.change(Layer(), {"self": regard.edits.Scale(0.0, heads=1)}) as change:
        output, _ = change.model(x)
    assert not output[:, :, 1].any()
    assert output[:, :, 0].any()


def test_without_a_reading_a_change_is_refused(library):
    register("attention_library.attention", adapter)
    with (
        pytest.raises(regard.WatchError, match="cannot be changed"),
        regard.change(Layer(), {"self": regard.edits.Scale(0.0)}) as change,
    ):
        change.model(torch.randn(1, 5, 3, 4))


def test_an_adapter_whose_weights_differ_from_the_result_is_refused(library):
    def halved(q, k, v, hidden=None):
        return adapter(q / 2, k, v, hidden)

    register("attention_library.attention", halved, weights=lambda result, *_: result[1])
    model = Layer()
    with regard.watch(model) as attentions:
        model(torch.randn(1, 5, 3, 4))
    with pytest.raises(regard.WatchError, match="unknown way"):
        attentions["self"]


def test_calls_that_are_no_attention_are_not_seen(library):
    register("attention_library.attention", adapter, when=lambda q, k, v, hidden=None: False)
    model = Layer()
    with pytest.warns(RuntimeWarning, match="seen no attention"), regard.watch(model) as attentions:
        model(torch.randn(1, 5, 3, 4))
    assert "softmax" in attentions.unseen[""]


def test_a_function_object_and_a_module_that_is_imported_later(library, monkeypatch):
    register(attention, adapter)
    x, model = torch.randn(1, 5, 3, 4), Layer()
    with regard.watch(model) as attentions:
        model(x)
    assert attentions["self"].shape == (1, 3, 5, 5)
    register("attention_library_later.attention", adapter)  # not imported: no error


class Methodical(nn.Module):
    def compute(self, q, k, v):
        return attention(q, k, v)

    def forward(self, x):
        return self.compute(x, x, x)


@pytest.mark.usefixtures("library")
def test_the_method_of_a_class():
    method, model = Methodical.compute, Methodical()
    register(method, lambda module, *tensors: adapter(*tensors))
    with regard.watch(model) as attentions:
        _, weights = model(torch.randn(1, 5, 3, 4))
    assert torch.allclose(attentions["self"].weights(), weights, atol=1e-6)
    assert Methodical.compute is method


def test_a_name_that_the_module_does_not_have(library):
    with pytest.raises(regard.WatchError, match="attention_library has no atention"):
        register("attention_library.atention", adapter)
