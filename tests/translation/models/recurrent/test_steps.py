"""How often a decoder calls attention, and that watches see its steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.translation.models.recurrent.models import LENGTHS, SOURCE, TARGET, small

import regard
from regard.translation.models.recurrent import attention

STEPS = TARGET.shape[1]


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"attention": "luong", "input_feeding": False}, {"attend": 1}),
        ({"attention": "luong"}, {"attend_step": STEPS}),
        ({"attention": "bahdanau"}, {"attend_step": STEPS}),
        ({"attention": "bahdanau", "score": "general"}, {"attend": STEPS}),
    ],
)
def test_all_steps_are_one_call_where_they_can_be_and_keys_are_prepared_once(
    settings: dict[str, Any], calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = dict.fromkeys(calls, 0)

    def count(name: str) -> None:
        function = getattr(attention, name)

        def counting(*tensors: Any, **how: Any) -> Any:
            counted[name] = counted.get(name, 0) + 1
            return function(*tensors, **how)

        monkeypatch.setattr(attention, name, counting)

    count("attend")
    count("attend_step")
    count("prepare_steps")
    small(**settings).train()(SOURCE, LENGTHS, TARGET).sum().backward()
    assert counted == calls | {"prepare_steps": 1}


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_gradients_are_those_of_attend(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(attention=kind).double()
    gradients = []
    for _ in range(2):
        logits = model(SOURCE, LENGTHS, TARGET)
        gradients.append(torch.autograd.grad(logits.sin().sum(), list(model.parameters())))
        monkeypatch.setattr(attention, "prepare_steps", lambda score, key, *_: (score, key))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_watch_sees_the_steps_and_a_change_changes_them() -> None:
    model = small()
    with torch.no_grad(), regard.watch(model) as attentions:
        model_before = model(SOURCE, LENGTHS, TARGET)
    assert "decoder.attention" in attentions
    with torch.no_grad(), regard.change(model, {"decoder.attention": lambda weights: weights * 0}):
        assert not torch.allclose(model(SOURCE, LENGTHS, TARGET), model_before)
