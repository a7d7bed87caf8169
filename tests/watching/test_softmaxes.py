"""Attention in a module's own code: a softmax with the shape of weights is listed."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import operators
from torch import nn
from torch.nn import functional as F

import regard

X = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
SOFTMAXES = {
    "torch": lambda scores: torch.softmax(scores, -1),
    "functional": lambda scores: F.softmax(scores, dim=-1),
    "method": lambda scores: scores.softmax(dim=-1),
    "module": nn.Softmax(-1),
}


class ByHand(nn.Module):
    def __init__(self, softmax, heads: int = 1) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.softmax, self.heads = softmax, heads

    def forward(self, x):
        query, key, value = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query(x), self.key(x), x)
        )
        return (self.softmax(query @ key.mT) @ value).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("name", SOFTMAXES)
def test_a_softmax_over_keys_is_listed_and_computes_what_it_did(name):
    model = nn.Sequential(ByHand(SOFTMAXES[name], heads=2), nn.Linear(8, 8))
    plain, operators_before = operators(lambda: model(X))
    with pytest.warns(RuntimeWarning, match="3 x 2 x 6 x 6"), regard.watch(model) as attentions:
        watched, during = operators(lambda: model(X))
    assert torch.equal(watched, plain)
    assert during == operators_before
    (path,) = attentions.unseen
    assert path in ("0", "0.softmax")
    assert "regard.declare" in attentions.unseen[path]


def test_attention_by_hand_is_listed_beside_attention_that_is_seen():
    model = nn.Sequential(
        ByHand(SOFTMAXES["torch"]), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    )
    message = "not everything was seen: 0: computed a softmax"
    with pytest.warns(RuntimeWarning, match=message), regard.watch(model) as attentions:
        model(X)
    assert list(attentions) == ["layer.1.self"]


def test_weights_of_one_query_over_the_steps_of_a_recurrence():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(8, 1)

        def forward(self, states):
            weights = F.softmax(self.score(states).squeeze(-1), dim=1)
            return torch.bmm(weights.unsqueeze(1), states)

    model = Decoder()
    with pytest.warns(RuntimeWarning, match="softmax of shape 3 x 6,"), regard.watch(model):
        model(X)


class Declared(ByHand):
    def forward(self, x):
        regard.declare(self.query(x), self.key(x), score=regard.scores.Dot())
        return super().forward(x)


class Around(nn.Module):
    """The attention is declared by the module around the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ByHand(SOFTMAXES["torch"])

    def forward(self, x):
        regard.declare(x, x)
        return self.core(x)


class Classes(nn.Module):
    """Shares of 5 classes, of every position and of the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        all_shares = torch.softmax(self.classes(self.body(x)), -1)
        return all_shares, self.classes(x.mean(1)).softmax(-1), x.flatten().softmax(0)


def test_attention_that_is_declared_and_shares_of_classes_are_not_listed():
    attentions = [Declared(SOFTMAXES["module"]), Around(), Declared(SOFTMAXES["method"])]
    model = nn.Sequential(*attentions, Classes())
    with regard.watch(model) as recorded_attentions:
        model(X)
    assert list(recorded_attentions) == ["layer.0.self", "layer.1.self", "layer.2.self"]
    assert recorded_attentions.unseen == {}


def test_layers_that_were_not_asked_for_are_not_listed():
    model = nn.Sequential(
        ByHand(SOFTMAXES["torch"]), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    )
    with regard.watch(model, layers=1) as attentions:
        model(X)
    assert attentions.unseen == {}


def test_a_softmax_that_somebody_else_replaced_stays_replaced(monkeypatch):
    original = torch.Tensor.softmax

    def replacement(*arguments, **named):
        return original(*arguments, **named)

    monkeypatch.setattr(torch.Tensor, "softmax", replacement)
    with pytest.warns(RuntimeWarning), regard.watch(ByHand(SOFTMAXES["method"])):
        pass
    assert torch.Tensor.softmax is replacement
