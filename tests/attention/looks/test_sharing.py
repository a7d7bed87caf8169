"""A reading and its look: the score's work on single queries and keys is done once for both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, scores

SCORES: dict[str, Callable[[], Any]] = {
    "general": lambda: scores.General(4, 6),
    "additive": lambda: scores.Additive(4, 6, 5),
    "capped": lambda: scores.SoftCap(scores.Additive(4, 6, 5), 2.0),
    "general of heads": lambda: scores.General(4, 6, heads=3),
    "additive of heads": lambda: scores.Additive(4, 6, 5, heads=3),
}
EVERY_SCORE = pytest.mark.parametrize("make", SCORES.values(), ids=SCORES)
MASK = masks.padding([7, 0])


def draw(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(3)
    shapes = ((2, 3, 5, 4), (2, 3, 7, 6), (2, 3, 7, 2))
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.fixture
def projections(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each side of a score was projected, whole or in part."""
    counted: Counter[str] = Counter()

    def count(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def counting(self: Any, *tensors: Tensor) -> Any:
            counted[name] += 1
            return real(self, *tensors)

        monkeypatch.setattr(kind, name, counting)

    count(scores.General, "factors")
    count(scores.Cosine, "factors")
    count(scores.Additive, "query_features")
    count(scores.Additive, "key_features")
    return counted


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("make", [*SCORES.values(), lambda: scores.Cosine(3.0)])
def test_the_projections_are_done_once(
    make: Callable[[], Any], learning: bool, projections: Counter[str]
) -> None:
    query, key, value = (each.requires_grad_(learning) for each in draw(torch.float32))
    if isinstance(score := make(), torch.nn.Module):
        score.requires_grad_(learning)
    if isinstance(score, scores.Cosine):
        key = key[..., :4]
    _, look = regard.read(query, key, value, score=score, mask=MASK)
    answers = [look.entropy(), look.received(), look.log_normaliser(), look.top(2)[0]]
    if learning:
        torch.stack([each.sum() for each in answers[:2]]).sum().backward()
    assert projections
    assert set(projections.values()) == {1}


@EVERY_SCORE
def test_so_they_are_for_all_strips_of_an_answer_with_a_gradient(
    make: Callable[[], Any], projections: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.attention.looks.weights.BLOCK", 1)
    query, key, _ = draw()
    look = regard.look(query, key, score=make().double())
    total_before = look._learns() and sum(projections.values())
    look.entropy().sum().backward()
    # Once to see whether a gradient is wanted, for the answer, and for the strips of the gradient.
    assert all(count <= total_before + 3 for count in projections.values())


@EVERY_SCORE
def test_both_are_what_attend_and_look_say(make: Callable[[], Any]) -> None:
    score = make().double()
    leaves = [*draw(), *score.parameters()]
    query, key, value = leaves[:3]

    def total(reading: Tensor, look: regard.Look) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        answers = [reading, look.entropy(), look.received(), look.weights(rows=[1, 4])]
        loss = sum((each.square().sum() for each in answers), torch.zeros(()))
        return answers, torch.autograd.grad(loss, leaves)

    options = {"score": score, "mask": MASK}
    together = total(*regard.read(query, key, value, **options))
    apart = total(regard.attend(query, key, value, **options), regard.look(query, key, **options))
    for a, b in zip([*together[0], *together[1]], [*apart[0], *apart[1]], strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_a_look_at_half_precision_is_as_exact_as_one_alone() -> None:
    query, key, value = (each.detach().bfloat16() for each in draw())
    score = scores.General(4, 6).requires_grad_(False)
    reading, look = regard.read(query, key, value, score=score)
    assert reading.dtype == torch.bfloat16
    assert torch.equal(look.entropy(), regard.look(query, key, score=score).entropy())


def test_a_score_of_the_callers_is_asked_as_it_is() -> None:
    query, key, value = (each.detach() for each in draw())

    def score(query: Tensor, key: Tensor) -> Tensor:
        return query @ key[..., :4].mT

    reading, look = regard.read(query, key, value, score=score)
    assert torch.allclose(look.weights() @ value, reading)
