"""The steps of a loop in a module are one attention, and its kind follows from its tensors."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import CLOSE
from torch import nn
from torch.nn import functional as F

import regard

pytestmark = pytest.mark.usefixtures("one_interception")

STEPS = 5
LENGTHS = [6, 4]
SCORES = {
    "scaled dot": None,
    "additive": regard.scores.Additive(d_query=8, d_key=8, d_hidden=6),
    "general": regard.scores.General(8, 8),
    "capped": regard.scores.SoftCap(regard.scores.Additive(8, 8, 6), 2.0),
}


class Decoder(nn.Module):
    """A recurrent decoder, whose states read the states of an encoder."""

    def __init__(self, score=None, encodes=False):
        super().__init__()
        self.cell, self.score = nn.GRUCell(8, 8), score
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.encodes, self.states = encodes, []

    def forward(self, source, steps=STEPS, **how):
        if self.encodes:
            source = self.encoder(source)
        state = source.new_zeros(len(source), 8)
        for _ in range(steps):
            self.states.append(state)
            reading = regard.attend(state[:, None], source, source, score=self.score, **how)
            state = self.cell(reading[:, 0], state)
        return state


@pytest.fixture
def source():
    return torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))


def watched(model, *arguments, **how):
    with torch.no_grad(), regard.watch(model) as attentions:
        model(*arguments, **how)
    return attentions


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("mask", [None, regard.masks.padding(LENGTHS)], ids=["all", "padding"])
def test_the_steps_of_a_loop_are_the_rows_of_one_look(source, score, mask):
    model = Decoder(score)
    attentions = watched(model, source, mask=mask)
    assert (list(attentions), attentions.kind("cross")) == (["cross"], "cross")
    assert attentions.steps("cross") == [(0, "tokens", (2, STEPS, 6))]
    states = torch.stack(model.states, 1)
    expected = regard.look(states, source, score=score, mask=mask).weights()
    torch.testing.assert_close(attentions["cross"].weights(), expected, **CLOSE)


@pytest.mark.parametrize("steps", [1, 2, STEPS])
@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_decoder_reads_another_sequence_in_any_number_of_steps(source, steps, encodes, mode):
    model = Decoder(encodes=encodes)
    with mode(), regard.watch(model) as attentions:
        model(source, steps)
    assert [(name, attentions.kind(name), attentions[name].shape) for name in attentions] == [
        ("cross", "cross", (2, steps, 6))
    ]


def test_each_place_in_the_code_is_an_attention_of_its_own(source):
    class Two(nn.Module):
        def forward(self, source):
            state, cache = source[:, :1] + 1, source[:, :0]
            for _ in range(STEPS):
                cache = torch.cat([cache, state], 1)
                state = state + self.read(state, cache)
                state = state + self.read(state, source)
            return state

        def read(self, query, key):
            return F.scaled_dot_product_attention(query, key, key)

    attentions = watched(Two(), source)
    shapes = {name: (attentions.kind(name), attentions[name].shape) for name in attentions}
    assert shapes == {"self": ("causal", (2, STEPS, STEPS)), "#1.cross": ("cross", (2, STEPS, 6))}


def test_the_layers_of_a_loop_stay_apart(source):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.randn(3, 2, 8, 8)

        def forward(self, x):
            for query, key in self.weights:
                x = x + F.scaled_dot_product_attention(x[:, -1:] @ query, x @ key, x)
            return x

    attentions = watched(Layers(), source)
    assert len(attentions) == 3
    assert {attentions[name].shape for name in attentions} == {(2, 1, 6)}


def test_steps_with_another_score_stay_apart(source):
    class Warming(nn.Module):
        def forward(self, states, source):
            for scale in (0.5, 0.5, 2.0):
                F.scaled_dot_product_attention(states, source, source, scale=scale)

    attentions = watched(Warming(), source[:, :1], source + 1)
    assert [step.shape for step in attentions.steps("cross")] == [(2, 2, 6), (2, 1, 6)]
    expected = torch.softmax(2.0 * source[:, :1] @ (source + 1).mT, -1)
    torch.testing.assert_close(attentions["cross"].weights(), expected, **CLOSE)


def test_a_change_of_a_loop_has_the_names_of_a_watch(source):
    model = Decoder()
    with regard.change(model, {"cross": regard.edits.Scale(0.0)}) as edits:
        model(source)
    assert edits.weights("cross").shape[-2:] == (STEPS, 6)
    with pytest.raises(regard.WatchError, match="no attention matched"):  # noqa: SIM117
        with regard.change(model, {"self": regard.edits.Scale(0.0)}):
            model(source)


class Reading(nn.Module):
    """An attention with some projections."""

    def __init__(self, *projected):
        super().__init__()
        self.projections = nn.ModuleDict({name: nn.Linear(8, 8) for name in projected})

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        sides = {"query": x, "key": memory}
        query, key = (
            self.projections[name](side) if name in self.projections else side
            for name, side in sides.items()
        )
        return regard.attend(query, key, memory)


@pytest.mark.parametrize("projected", [(), ("query",), ("key",), ("query", "key")])
def test_kinds_follow_from_tensors_and_not_by_lengths(source, projected):
    model = Reading(*projected)
    other_source = source + 1
    assert list(watched(model, source)) == ["self"]
    assert list(watched(model, source, other_source)) == ["cross"]
    assert list(watched(model, source[:, :1].clone(), other_source[:, :1].clone())) == ["cross"]
    assert list(watched(model, source, other_source[:, :4].clone())) == ["cross"]
