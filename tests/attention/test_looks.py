"""Looks: lazy, windowed, and the weights that the reading was made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard.attention.kernels.choose import KERNELS
from regard.attention.looks import StoredLook, statistics

CAUSAL = regard.masks.causal(align="end")


@pytest.fixture
def tensors() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, length, 4) for length in (5, 7, 7)]


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in ("cpu", "triton")])
def test_the_weights_of_a_look_make_the_reading(kernel: str, tensors: list[torch.Tensor]) -> None:
    bias = torch.randn(3, 5, 7)
    with regard.kernel(kernel):
        reading, look = regard.read(*tensors, bias=bias, mask=regard.masks.padding([4, 0]))
    assert look.shape == (2, 3, 5, 7)
    assert torch.allclose(look.weights() @ tensors[2], reading, atol=1e-6)
    alone = regard.look(*tensors[:2], bias=bias, mask=regard.masks.padding([4, 0]))
    assert torch.equal(alone.weights(), look.weights())


@pytest.mark.parametrize(
    ("rows", "columns", "index"),
    [
        (None, None, (slice(None), slice(None))),
        (range(1, 3), None, (slice(1, 3), slice(None))),
        (None, slice(None, None, 2), (slice(None), slice(None, None, 2))),
        (slice(-2, None), range(3), (slice(-2, None), slice(3))),
        ([4, 0], None, ([4, 0], slice(None))),
        (torch.tensor([-1]), torch.tensor([2]), ([-1], slice(2, 3))),
        (range(0), range(0), (slice(0), slice(0))),
    ],
)
def test_any_window(
    rows: Any, columns: Any, index: tuple[Any, Any], tensors: list[torch.Tensor]
) -> None:
    look = regard.look(*tensors[:2], bias=torch.randn(5, 7), mask=torch.rand(5, 7) > 0.2)
    expected = look.weights()[..., index[0], :][..., index[1]]
    for any_look in (look, StoredLook(look.weights())):
        assert torch.allclose(any_look.weights(rows=rows, columns=columns), expected, atol=1e-6)


@pytest.mark.parametrize("learning", [False, True])
def test_windows_in_blocks(
    learning: bool, monkeypatch: pytest.MonkeyPatch, tensors: list[torch.Tensor]
) -> None:
    look = regard.look(tensors[0].requires_grad_(learning), tensors[1], mask=CAUSAL)
    monkeypatch.setattr(statistics, "BLOCK", 14)
    monkeypatch.setattr("regard.attention.looks.source.BLOCK", 14)
    window = look.weights(columns=[6, 1])
    assert window.requires_grad == learning
    assert torch.allclose(window, look.weights()[..., [6, 1]])
    assert torch.allclose(look.weights(rows=[3, 0]), look.weights()[..., [3, 0], :])


def test_positions_that_are_not_there(tensors: list[torch.Tensor]) -> None:
    with pytest.raises(IndexError, match="of 5"):
        regard.look(*tensors[:2]).weights(rows=[5])
    with pytest.raises(IndexError, match="one axis"):
        regard.look(*tensors[:2]).weights(columns=torch.zeros(2, 2, dtype=torch.long))


def test_a_look_computes_one_row_of_a_function_until_it_is_asked() -> None:
    rows = []

    def score(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        rows.append(query.shape[-2])
        return query @ key.mT

    look = regard.look(torch.ones(2, 3), torch.ones(4, 3), score=score)
    assert look.shape == (2, 4)
    assert rows == [1]  # it shows which tensors the function reads
    look.weights()
    assert rows == [1, 2]


def test_a_look_has_the_batch_axes_of_its_mask() -> None:
    mask = torch.ones(6, 1, 4, dtype=torch.bool)
    look = regard.look(torch.ones(2, 3), torch.ones(4, 3), mask=mask)
    assert look.shape == (6, 2, 4)
    assert look.weights().shape == (6, 2, 4)
    assert repr(look) == "Look(shape=(6, 2, 4))"


def test_the_weights_of_a_look_can_be_trained_with(tensors: list[torch.Tensor]) -> None:
    query = tensors[0].requires_grad_()
    regard.look(query, tensors[1]).weights(rows=range(2)).square().sum().backward()
    assert query.grad is not None
    assert query.grad[..., :2, :].any()
    assert not query.grad[..., 2:, :].any()


def test_readable_is_what_the_mask_and_a_bias_of_minus_infinity_leave() -> None:
    query, key = torch.zeros(2, 1, 3, 4), torch.zeros(5, 4)
    bias = torch.zeros(3, 5)
    bias[:, 4] = -torch.inf
    look = regard.look(query, key, mask=regard.masks.causal(align="start"), bias=bias)
    expected = torch.ones(3, 5, dtype=torch.bool).tril()
    expected[:, 4] = False
    assert torch.equal(look.readable(), expected.expand(2, 1, 3, 5))
    assert torch.equal(look.readable([2], [0, -1]), expected[2:, [0, 4]].expand(2, 1, 1, 2))
    assert torch.equal(look.mean_heads().readable(), expected.expand(2, 3, 5))
    assert regard.look(query, key).readable() is None
    assert StoredLook(torch.eye(3)).readable() is None
