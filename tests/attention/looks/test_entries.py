"""Looks at some batch entries and heads of another."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.looks import StoredLook
from regard.attention.shapes import ShapeError

BATCH, HEADS, QUERIES, KEYS, WIDTH = 3, 2, 5, 7, 4


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def per_head(score: Any) -> Any:
    torch.manual_seed(1)
    return score.double()


WEIGHTS = seeded(HEADS, WIDTH, WIDTH, seed=8)
HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "cosine": {"score": scores.Cosine(3.0)},
    "additive": {"score": per_head(scores.Additive(WIDTH, WIDTH, 3, bias=True))},
    "additive per head": {"score": per_head(scores.Additive(WIDTH, WIDTH, 3, True, heads=HEADS))},
    "general per head": {"score": per_head(scores.General(WIDTH, WIDTH, heads=HEADS))},
    "capped": {"score": scores.SoftCap(per_head(scores.General(WIDTH, WIDTH, heads=HEADS)), 2.0)},
    "a function that knows its heads": {"score": lambda query, key: query @ WEIGHTS @ key.mT},
    "sparse": {"normaliser": normalisers.Sparsemax()},
    "bias": {"bias": seeded(HEADS, QUERIES, KEYS, seed=3)},
    "tensor": {"mask": seeded(BATCH, 1, QUERIES, KEYS, seed=4) > 0},
    "causal": {"mask": masks.causal(align="end")},
    "padding": {"mask": masks.padding([7, 0, 2])},
    "joined": {"mask": masks.padding([7, 0, 2]) & masks.band(2, 1)},
    "rule": {"mask": lambda row, column: (row + column) % 3 > 0},
    "documents": {"mask": masks.documents(torch.tensor([0, 0, 1, 1, 1]), torch.arange(7) // 4)},
}
INDICES = [0, -1, (1, 1), (..., 1), slice(1, None), (slice(0, 2), 0), (2, slice(0, 0)), ..., ()]


def selected(tensor: Tensor, index: Any, kept_axes: int = 2) -> Tensor:
    """These entries of the batch axes, which come before a tensor's own."""
    indices = index if isinstance(index, tuple) else (index,)
    return tensor[(*indices, *[slice(None)] * kept_axes) if ... in indices else index]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("options", HOW.values(), ids=HOW)
def test_a_selection_says_what_the_whole_says_of_it(options: dict[str, Any], index: Any) -> None:
    look = regard.look(
        seeded(BATCH, HEADS, QUERIES, WIDTH), seeded(1, HEADS, KEYS, WIDTH, seed=1), **options
    )
    all_weights, selection = look.weights(), look[index]
    assert selection.shape == tuple(selected(all_weights, index).shape)
    for selection_look in (selection, StoredLook(all_weights)[index]):
        torch.testing.assert_close(selection_look.weights(), selected(all_weights, index))
        torch.testing.assert_close(selection_look.entropy(), selected(look.entropy(), index, 1))
        torch.testing.assert_close(selection_look.received(), selected(look.received(), index, 1))
        torch.testing.assert_close(selection_look.map(2, 3), selected(look.map(2, 3), index))
        torch.testing.assert_close(selection_look.top(2)[0], selected(look.top(2)[0], index))


def test_a_selection_of_a_selection_and_of_a_mean() -> None:
    look = regard.look(
        seeded(2, 3, 2, 5, 4), seeded(2, 1, 2, 7, 4, seed=1), mask=masks.padding([5, 3])
    )
    torch.testing.assert_close(look[1][:, 0][2].weights(), look.weights()[1, 2, 0])
    mean = look.mean_heads()
    torch.testing.assert_close(mean[1, 1:].weights(), mean.weights()[1, 1:])
    torch.testing.assert_close(mean[0].entropy(), mean.entropy()[0])
    assert [each.shape for each in look[0]] == [(2, 5, 7)] * 3


def test_what_read_shares_is_selected_too() -> None:
    score = per_head(scores.Additive(WIDTH, WIDTH, 3, heads=HEADS))
    query, key = seeded(BATCH, HEADS, QUERIES, WIDTH), seeded(BATCH, HEADS, KEYS, WIDTH, seed=1)
    _, look = regard.read(query, key, key, score=score)
    torch.testing.assert_close(look[2, 1].weights(), look.weights()[2, 1])


def test_only_the_selected_head_is_scored() -> None:
    score = scores.Additive(WIDTH, WIDTH, 3, heads=HEADS).double()
    look = regard.look(seeded(BATCH, HEADS, 5, WIDTH), seeded(BATCH, HEADS, 7, WIDTH), score=score)
    shapes: list[torch.Size] = []
    combine = scores.Additive.combine

    def counting(self: Any, query: Tensor, key: Tensor) -> Tensor:
        shapes.append(key.shape)
        return combine(self, query, key)

    with patch.object(scores.Additive, "combine", counting):
        chosen_look = look[1, 0]
        assert shapes == []
        chosen_look.weights()
    assert shapes == [(7, 3)]


def test_gradients_of_a_selection_reach_its_head_alone() -> None:
    score: nn.Module = scores.General(WIDTH, WIDTH, heads=HEADS).double()
    query = seeded(BATCH, HEADS, 5, WIDTH).requires_grad_()
    look = regard.look(query, seeded(BATCH, HEADS, 7, WIDTH, seed=1), score=score)
    look[:, 1].entropy().sum().backward()
    weight = next(score.parameters())
    expected = [query.grad, weight.grad]
    query.grad = weight.grad = None
    look.entropy()[:, 1].sum().backward()
    torch.testing.assert_close(expected, [query.grad, weight.grad])
    assert weight.grad is not None
    assert weight.grad[0].eq(0).all()


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (3, IndexError, "entry 3 of batch axis 0: it has 3"),
        ((0, -3), IndexError, "entry -3 of batch axis 1: it has 2"),
        (
            (0, 0, 0),
            ShapeError,
            r"has 2 batch axes, got 3 indices: .* weights\(rows=…, columns=…\)",
        ),
        ((..., 0, ...), IndexError, r"more than one \.\.\."),
        ([0, 1], TypeError, "got list for batch axis 0: for several entries take a slice"),
        (torch.tensor([0, 1]), TypeError, "got Tensor for batch axis 0"),
        (None, TypeError, "got NoneType"),
        (True, TypeError, "got bool"),
        (slice(None, None, -1), IndexError, "has step -1: pass 1 or more"),
    ],
)
def test_an_index_that_means_nothing_is_refused(
    index: Any, error: type[Exception], message: str
) -> None:
    look = regard.look(torch.zeros(3, 2, 4, 4), torch.zeros(3, 2, 5, 4))
    with pytest.raises(error, match=message):
        look[index]


@pytest.mark.parametrize("rows", [3, "ab", [0.5], torch.ones(5, dtype=torch.bool)])
def test_rows_that_are_no_positions(rows: Any) -> None:
    look = regard.look(torch.zeros(5, 4), torch.zeros(5, 4))
    for options in ({"rows": rows}, {"columns": rows}):
        with pytest.raises(TypeError, match=r"positions (are|hold) .*: pass (several|whole)"):
            look.weights(**options)
    assert look.weights(rows=[]).shape == (0, 5)
