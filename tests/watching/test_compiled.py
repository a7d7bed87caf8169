"""Models that torch.compile made: what to do is said, and gives the same bits as the model before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard

EAGER = r'is compiled: .* inside `with torch\.compiler\.set_stance\("force_eager"\):`'
X = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile")


@pytest.fixture(autouse=True)
def reset():
    yield
    torch._dynamo.reset()


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def of_module(model):
    return torch.compile(model, backend="aot_eager")


def in_place(model):
    model.compile(backend="aot_eager")
    return model


def of_forward(model):
    model.forward = torch.compile(model.forward, backend="aot_eager")
    return model


@pytest.mark.parametrize("compile_model", [of_module, in_place, of_forward])
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
    model = of_module(encoder())
    model(X)
    with pytest.raises(regard.WatchError, match=EAGER), regard.change(model, {"*": torch.relu}):
        model(X)
    for method in ("run", "gradient"):
        with pytest.raises(regard.WatchError, match=EAGER):
            regard.effects(model, X, lambda output: output.norm(), method=method)
    with torch.compiler.set_stance("force_eager"):
        effects = regard.effects(model, X, lambda output: output[..., 0].sum())
    expected = regard.effects(encoder(), X, lambda output: output[..., 0].sum())
    assert torch.equal(effects.array(), expected.array())
