"""Models that torch.compile made: what to do is said, and gives the same bits as the model before."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard

EAGER = r'is compiled: .* inside `with torch\.compiler\.set_stance\("force_eager"\):`'
X = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
NUDGE = regard.edits.Scale(1 - 1e-3)
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using `torch.compile"),
    pytest.mark.usefixtures("one_interception"),
]


@pytest.fixture(autouse=True)
def reset():
    yield
    torch._dynamo.reset()


def METRIC(output):
    return output[..., 0].sum()


def encoder(layers=2):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def of_module(model):
    return torch.compile(model, backend="aot_eager")


def for_debugging(model):
    return torch.compile(model, backend="eager")


def in_place(model):
    model.compile(backend="aot_eager")
    return model


def of_forward(model):
    model.forward = torch.compile(model.forward, backend="aot_eager")
    return model


@pytest.mark.parametrize("compile_model", [of_module, for_debugging, in_place, of_forward])
@torch.no_grad()
def test_a_compiled_model_is_seen_where_it_runs_uncompiled_with_the_same_bits(compile_model):
    plain = encoder()
    with regard.watch(plain) as plain_seen:
        expected = plain(X)
    model = compile_model(encoder())
    with pytest.warns(RuntimeWarning, match=EAGER), regard.watch(model) as unseen:
        model(X)  # compiled while the watch is open
    assert [*unseen.unseen] == [""]
    with torch.compiler.set_stance("force_eager"), regard.watch(model) as seen:
        assert torch.equal(model(X), expected)
    assert list(seen) == list(plain_seen)
    for name in seen:
        assert torch.equal(seen[name].weights(), plain_seen[name].weights())


@torch.no_grad()
def test_changes_and_effects_of_a_compiled_model_say_the_same():
    model = of_module(encoder(layers=1))
    model(X)
    with pytest.raises(regard.WatchError, match=EAGER), regard.change(model, {"*": torch.relu}):
        model(X)
    for method in ("run", "gradient"):
        with pytest.raises(regard.WatchError, match=EAGER):
            regard.effects(model, X, lambda output: output.norm(), method=method)
    with torch.compiler.set_stance("force_eager"):
        effects = regard.effects(model, X, lambda output: output[..., 0].sum())
    expected = regard.effects(encoder(layers=1), X, lambda output: output[..., 0].sum())
    assert torch.equal(effects.array(), expected.array())


class Twice(nn.Module):
    """Computes two attentions by itself, and holds a module that computes another one."""

    def __init__(self, inner=True):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.inner = Twice(inner=False) if inner else None

    def forward(self, x):
        for _ in range(2):
            heads = self.project(x).unflatten(-1, (2, 4)).transpose(-2, -3)
            x = x + F.scaled_dot_product_attention(heads, heads, heads).transpose(-2, -3).flatten(
                -2
            )
        return x if self.inner is None else self.inner(x)


@torch.no_grad()
def test_each_attention_of_a_module_has_its_effect():
    torch.manual_seed(0)
    model = Twice()
    table = regard.effects(model, X, METRIC, of="layers", progress=False)
    assert [row.name for row in table] == ["self", "#1.self", "inner.self", "inner#1.self"]
    base = METRIC(model(X))
    for row in table:
        with regard.change(model, {row.name: regard.edits.Scale(0.0)}):
            effect = METRIC(model(X)) - base
        assert row.effect == pytest.approx(float(effect), abs=1e-5)
    with regard.change(model, {"inner": regard.edits.Scale(0.0)}) as change:
        model(X)
    assert [name in change for name in ("self", "inner.self", "inner#1.self")] == [
        False,
        True,
        True,
    ]
    exact = regard.effects(model, X, METRIC, edit=NUDGE, progress=False)
    near = regard.effects(model, X, METRIC, edit=NUDGE, method="gradient")
    assert torch.allclose(near.array(), exact.array(), atol=1e-5)
    assert list(regard.routes(model, X, METRIC).flows) == [row.name for row in table]


@torch.no_grad()
def test_the_number_of_a_layer_selects_all_its_attentions():
    model = nn.Sequential(Twice(inner=False), Twice(inner=False))
    with regard.watch(model) as seen:
        model(X)
    first, second, third, fourth = seen
    for pattern, names in {
        "layer.0": {first, second},
        "layer.0.*": {first, second},
        "layer.?.self": {first, second, third, fourth},
        "0#0": {first},
        "0#1": {second},
        "*#0": {first, third},
        "layer.*": {first, second, third, fourth},
        first: {first},
        second: {second},
    }.items():
        with regard.change(model, {pattern: torch.relu}) as change:
            model(X)
        assert {name for name in seen if name in change} == names
        with regard.watch(model, layers=pattern) as selected:
            model(X)
        assert set(selected) == names
    with regard.watch(model, layers=1) as selected:
        model(X)
    assert set(selected) == {third, fourth}


@torch.no_grad()
def test_attentions_of_graphs_are_never_taken_for_one():
    """torch's debugging backend "eager" calls functions that a watch sees, but no modules."""
    model = Twice()
    model.inner.compile(backend="eager")
    with pytest.warns(RuntimeWarning, match="inner: " + EAGER), regard.watch(model) as seen:
        model(X)
    assert list(seen) == ["self", "#1.self"]
    with (
        pytest.warns(RuntimeWarning, match="not everything was changed; inner " + EAGER),
        regard.change(model, {"*": torch.relu}),
    ):
        model(X)
    with (
        pytest.raises(regard.WatchError, match=EAGER),
        regard.change(for_debugging(encoder()), {"*": torch.relu}) as change,
    ):
        change.model(X)
    traced = torch.fx.symbolic_trace(Twice())  # of this graph it is known that it computes all
    with regard.watch(traced) as seen:
        traced(X)
    assert list(seen) == ["self", "#1.self", "#2.self", "#3.self"]
