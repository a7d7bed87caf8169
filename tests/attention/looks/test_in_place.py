"""A look refuses to answer once a tensor that it is made of was written to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.looks import StoredLook
from regard.attention.versions import ChangedError

CAUSAL = masks.causal(align="end")
MASKS: dict[str, Callable[[Tensor, Tensor], masks.MaskLike]] = {
    "padding": lambda lengths, readable: masks.padding(lengths),
    "both": lambda lengths, readable: masks.padding(lengths) & CAUSAL,
    "either": lambda lengths, readable: masks.band(0, 0) | readable,
    "documents": lambda lengths, readable: masks.documents(
        lengths[:, None], readable[:, 0].long() * 7
    ),
    "function": lambda lengths, readable: lambda row, column: column < lengths.max(),
}


def draw() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 9, 4), torch.randn(2, 7, 4)


def refuse(look: regard.Look) -> None:
    """Every answer of a look, and of the looks made of it, is refused."""
    answers: list[Callable[[], object]] = [
        look.weights,
        lambda: look.weights(rows=range(2), columns=range(3)),
        look.entropy,
        look.perplexity,
        look.log_normaliser,
        lambda: look.top(2),
        look.argmax,
        look.received,
        lambda: look.map(2, 2),
        look.distance,
        look.readable,
        look[0].entropy,
        look.mean_heads().entropy,
        look.mean_heads().weights,
        look.plot,
    ]
    for answer in answers:
        with pytest.raises(ChangedError, match="was changed in place after the call"):
            answer()
    assert str(list(look.shape))[1:-1] in repr(look)


@pytest.mark.parametrize("make", MASKS.values(), ids=MASKS)
def test_what_a_mask_holds_may_not_change_before_an_answer(
    make: Callable[[Tensor, Tensor], masks.MaskLike],
) -> None:
    query, key = draw()
    lengths, readable = torch.tensor([7, 7]), torch.ones(2, 9, 7, dtype=torch.bool)
    mask = make(lengths, readable)
    look, (_, second) = regard.look(query, key, mask=mask), regard.read(query, key, key, mask=mask)
    look.log_normaliser()
    lengths.copy_(torch.tensor([3, 3]))
    readable[..., 2:] = False
    refuse(look)
    refuse(second)
    regard.look(query, key, mask=mask).entropy()  # of what the mask holds now


@pytest.mark.parametrize("at", range(3), ids=["query", "key", "bias"])
def test_nor_may_queries_keys_and_biases(at: int) -> None:
    query, key = draw()
    tensors = (query, key, torch.randn(9, 7))
    look = regard.look(query, key, bias=tensors[2])
    _, second = regard.read(query, key, key, bias=tensors[2])
    tensors[at][..., 0] = 0
    refuse(look)
    refuse(second)


FUNCTIONS: dict[str, Callable[[Tensor], dict[str, object]]] = {
    "score": lambda factors: {"score": lambda q, k: (q * factors) @ k.mT},
    "normaliser": lambda factors: {"normaliser": lambda rows: torch.softmax(rows * factors[0], -1)},
    "mask": lambda factors: {"mask": lambda row, column: column < row + factors[0] * 9},
}


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)
def test_nor_may_what_a_function_of_the_callers_reads(
    make: Callable[[Tensor], dict[str, object]],
) -> None:
    (query, key), factors, beside = draw(), torch.ones(4), torch.ones(4)
    look = regard.look(query, key, **make(factors))
    beside.zero_()
    assert look.entropy().isfinite().all()
    factors.mul_(2)
    with pytest.raises(ChangedError, match="a tensor of the score, mask or normaliser"):
        look.entropy()


def test_nor_may_the_parameters_of_a_score_and_stored_weights() -> None:
    query, key = draw()
    score, weights = regard.scores.Additive(4, 4, 3), torch.eye(3)
    look, stored = regard.look(query, key, score=score), StoredLook(weights)
    torch.optim.SGD(score.parameters(), 0.1).step()  # without gradients nothing is written
    look.entropy()
    with torch.no_grad():
        score.key_weight += 1
    weights.zero_()
    with pytest.raises(ChangedError, match="a parameter of the score"):
        look.entropy()
    with pytest.raises(ChangedError, match="weights"):
        stored.entropy()


def test_a_look_that_shares_the_projections_of_its_reading_reads_those_alone() -> None:
    query, key = draw()
    score = regard.scores.Additive(4, 4, 3).requires_grad_(False)
    reading, look = regard.read(query, key, key, score=score)
    query.zero_()
    score.key_weight.zero_()
    assert torch.allclose(look.weights() @ key, reading, atol=1e-5)


def test_a_function_that_is_tried_leaves_the_random_numbers_as_they_were() -> None:
    query, key = draw()
    state = torch.get_rng_state()
    regard.look(query, key, normaliser=lambda rows: torch.dropout(rows.softmax(-1), 0.5, True))
    assert torch.equal(torch.get_rng_state(), state)


def test_but_the_precision_may_that_projections_are_done_in() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(9, 4) * 9, torch.randn(7, 4) * 9
    score = regard.scores.Additive(4, 4, 3).requires_grad_(False)
    look = regard.look(query, key, score=score)
    with torch.autocast("cpu", torch.bfloat16):
        rough = look.log_normaliser()
    alone = regard.look(query, key, score=score)
    assert not torch.equal(rough, alone.log_normaliser())
    assert torch.equal(look.log_normaliser(), alone.log_normaliser())
