"""What a look keeps between two answers holds only while nothing it depends on is written to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks

CAUSAL = masks.causal(align="end")
MASKS: dict[str, Callable[[Tensor, Tensor], masks.MaskLike]] = {
    "padding": lambda lengths, shown: masks.padding(lengths),
    "both": lambda lengths, shown: masks.padding(lengths) & CAUSAL,
    "either": lambda lengths, shown: masks.band(0, 0) | shown,
    "documents": lambda lengths, shown: masks.documents(lengths[:, None], shown[:, 0].long() * 7),
    "function": lambda lengths, shown: lambda row, column: column < lengths.max(),
}


@pytest.mark.parametrize("make", MASKS.values(), ids=MASKS)
def test_what_a_mask_holds_may_change_between_two_answers(
    make: Callable[[Tensor, Tensor], masks.MaskLike],
) -> None:
    query, key = torch.randn(2, 9, 4), torch.randn(2, 7, 4)
    lengths, shown = torch.tensor([7, 7]), torch.ones(2, 9, 7, dtype=torch.bool)
    mask = make(lengths, shown)
    look = regard.look(query, key, mask=mask)
    before = look.log_normaliser()
    lengths.copy_(torch.tensor([3, 3]))
    shown[..., 2:] = False
    alone = regard.look(query, key, mask=mask)
    assert not torch.allclose(before, alone.log_normaliser())
    assert torch.allclose(look.log_normaliser(), alone.log_normaliser())
    assert torch.allclose(look.weights(rows=range(4)), alone.weights(rows=range(4)))


def test_so_may_the_precision_that_projections_are_done_in() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(9, 4) * 9, torch.randn(7, 4) * 9
    score = regard.scores.Additive(4, 4, 3).requires_grad_(False)
    look = regard.look(query, key, score=score)
    with torch.autocast("cpu", torch.bfloat16):
        rough = look.log_normaliser()
    alone = regard.look(query, key, score=score)
    assert not torch.equal(rough, alone.log_normaliser())
    assert torch.equal(look.log_normaliser(), alone.log_normaliser())
