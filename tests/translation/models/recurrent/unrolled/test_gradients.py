"""The gradients derived by hand, against differences and against the cells step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.scores import Additive
from regard.loops import threads as sharing
from regard.translation.models.recurrent.attention import OneAttention
from regard.translation.models.recurrent.cells import Cell, new_cell
from regard.translation.models.recurrent.source import Source
from regard.translation.models.recurrent.unrolled import Steps, unroll, unroll_reading

SIZES = [3, 3, 1]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def parameters(module: torch.nn.Module) -> list[Tensor]:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return list(module.parameters())


def one_by_one(cell: Cell, given: Tensor, steps: Steps, first: tuple[Tensor, ...]) -> Any:
    """The same with the cell itself, a row at a time."""
    states: dict[int, tuple[Tensor, ...]] = {}
    for k, (start, size) in enumerate(zip(steps.starts, steps.sizes, strict=True)):
        for row in range(size):
            if k and row < steps.sizes[k - 1]:
                before = states[steps.starts[k - 1] + row]
            else:
                nothing = cell.nothing(given, 1)
                before = tuple(part[row : row + 1] for part in first) if first else nothing
            states[start + row] = cell(given[start + row : start + row + 1], before)
    return tuple(torch.cat(part) for part in zip(*(states[n] for n in sorted(states)), strict=True))


@pytest.mark.parametrize("name", ["gru", "lstm"])
@pytest.mark.parametrize("way", [Steps.forwards, Steps.backwards])
def test_a_packed_layer_is_its_cell_row_by_row(name: Any, way: Any) -> None:
    torch.manual_seed(0)
    cell, steps = new_cell(name, 2, 4).double(), way(SIZES)
    leaves = [drawn(7, cell.gates * 4), *parameters(cell)[2:]]
    made, expected = unroll(cell, leaves[0], steps), one_by_one(cell, leaves[0], steps, ())
    assert made is not None
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    upstream = [torch.randn_like(part) for part in made]
    ours, theirs = (torch.autograd.grad(parts, leaves, upstream) for parts in (made, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_layer_has_the_gradients_of_differences(name: Any) -> None:
    torch.manual_seed(0)
    cell = new_cell(name, 2, 3).double()
    parameters(cell)
    weight, bias = cell.state_projection.weight, cell.state_projection.bias
    given, first = drawn(6, cell.gates * 3), [drawn(2, 3) for _ in range(cell.parts)]

    def states(given: Tensor, weight: Tensor, bias: Tensor, *first: Tensor) -> Any:
        return unroll(cell, given, Steps.forwards([2, 2, 2]), first)

    assert torch.autograd.gradcheck(states, (given, weight, bias, *first))


class Decoder:
    """A cell, an attention, and sentences of unequal lengths, one of them empty."""

    def __init__(self, name: Any, bias: bool = False) -> None:
        torch.manual_seed(0)
        self.cell = new_cell(name, 2, 3, 4).double()
        self.attention = OneAttention(Additive(3, 4, 5, bias=bias)).double()
        self.given, self.values = drawn(3, 3, self.cell.gates * 3), drawn(3, 4, 4)
        self.first = [drawn(3, 3) for _ in range(self.cell.parts)]
        self.readable = (torch.arange(4) < torch.tensor([[4], [2], [0]]))[:, None]
        self.weights = [*parameters(self.cell)[2:], *parameters(self.attention)]

    @property
    def source(self) -> Source:
        keys = self.attention.keys(self.values)
        return Source(self.values, keys, self.readable, (tuple(self.first),))

    def at_once(self, *_: Tensor) -> Any:
        return unroll_reading([self.cell], self.attention, self.given, self.source)

    def stepwise(self) -> tuple[Tensor, Tensor]:
        source = self.source
        state, states, contexts = source.first[0], [], []
        for given in self.given:
            contexts.append(self.attention(state[0][:, None], source)[:, 0])
            state = self.cell(given, state, contexts[-1])
            states.append(state[0])
        return torch.stack(states), torch.stack(contexts)

    @property
    def leaves(self) -> list[Tensor]:
        return [self.given, self.values, *self.first, *self.weights]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_reading_decoder_is_its_steps(name: Any, bias: bool) -> None:
    decoder = Decoder(name, bias)
    made, expected = decoder.at_once(), decoder.stepwise()
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    upstream = [torch.randn_like(part) for part in made]
    ours, theirs = (
        torch.autograd.grad(parts, decoder.leaves, upstream) for parts in (made, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_reading_decoder_has_the_gradients_of_differences(name: Any) -> None:
    decoder = Decoder(name)
    assert torch.autograd.gradcheck(decoder.at_once, tuple(decoder.leaves), fast_mode=True)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss() -> list[Tensor]:
        decoder = Decoder("gru")
        states, contexts = decoder.at_once()
        return [states, *torch.autograd.grad(states.sum() + contexts.sum(), decoder.leaves)]

    alone, before = loss(), torch.get_num_threads()
    monkeypatch.setattr(sharing, "GRAIN", 1)
    torch.set_num_threads(3)
    try:
        for one, many in zip(alone, loss(), strict=True):
            torch.testing.assert_close(many, one, rtol=1e-13, atol=1e-13)
    finally:
        torch.set_num_threads(before)


def test_a_second_gradient_is_refused() -> None:
    decoder = Decoder("gru")
    loss = decoder.at_once()[0].square().sum()
    (slope,) = torch.autograd.grad(loss, decoder.given, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
