"""Whole models with all steps at once and step by step, and which of them take which way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.translation.models.recurrent.models import KINDS, LENGTHS, SOURCE, TARGET, small
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import regard
from regard.translation.models.recurrent import RecurrentModel
from regard.translation.models.recurrent.cells import Cell, GRUCell
from regard.translation.models.recurrent.unrolled import layers


def hidden_and_gradients(model: RecurrentModel, lengths: Tensor = LENGTHS) -> list[Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    hidden = model.hidden(SOURCE, lengths, TARGET)
    (hidden * torch.randn_like(hidden)).sum().backward()
    return [hidden, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("kind", KINDS)
def test_at_once_is_step_by_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(**KINDS[kind], dropout=0.3).float().train()
    at_once = hidden_and_gradients(model)
    again = hidden_and_gradients(model)
    monkeypatch.setattr(layers, "serves", lambda given: False)
    stepwise = hidden_and_gradients(model)
    assert len(at_once) == len(stepwise)
    for ours, same, theirs in zip(at_once, again, stepwise, strict=True):
        assert torch.equal(ours, same)  # an exact resume needs the same bits
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


class Count:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, inner = 0, layers._operator

        def counted(*given: Any) -> Any:
            self.calls += 1
            return inner(*given)

        monkeypatch.setattr(layers, "_operator", counted)

    def of(self, model: RecurrentModel) -> int:
        self.calls = 0
        model.hidden(SOURCE, LENGTHS, TARGET)
        return self.calls


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("bahdanau", 3),
        ("bahdanau lstm", 3),
        ("luong unfed", 2),  # its encoder has one direction
        ("fixed vector", 3),
        ("luong dot", 2),  # what is fed back is not a context
        ("bahdanau four heads", 2),
        ("bahdanau cosine", 2),
        ("bahdanau two layers", 4),
    ],
)
def test_who_is_served(kind: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {**KINDS[kind], "bidirectional": False} if calls == 2 and kind == "luong unfed" else {}
    assert Count(monkeypatch).of(small(**{**KINDS[kind], **parts})) == calls


def test_who_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model, count = small().float(), Count(monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        assert count.of(model) == 0
    with regard.kernel("reference"):
        assert count.of(model) == 2  # the encoder reads nothing
    with regard.kernel("cpu"):
        assert count.of(model) == 3


def test_tensors_without_numbers_are_left_to_the_cells() -> None:
    cell, given = GRUCell(4, 8), torch.randn(6, 3 * 8)
    mode, steps = FakeTensorMode(allow_non_fake_inputs=True), layers.Steps.forwards([3, 3])
    assert layers.unroll(cell, given, steps) is not None
    assert layers.unroll(cell, mode.from_tensor(given), steps) is None
    with mode:
        assert layers.unroll(cell, given, steps) is None
        assert cell(given[:3], (torch.zeros(3, 8),), None)[0].shape == (3, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_be_taken_apart_afterwards(kind: str) -> None:
    """FSDP frees what it had put together; a storage that numpy has seen cannot be freed so."""
    model = small(**KINDS[kind]).float().train()
    hidden_and_gradients(model)
    assert all(weight.untyped_storage().resizable() for weight in model.parameters())


def test_a_hooked_cell_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, count = small(**KINDS["bahdanau"]), Count(monkeypatch)
    before = count.of(model)
    seen: list[int] = []
    hooks = [
        module.register_forward_hook(lambda *_: seen.append(1))
        for module in model.modules()
        if isinstance(module, Cell)
    ]
    assert count.of(model) == 0
    assert seen
    for hook in hooks:
        hook.remove()
    assert count.of(model) == before
