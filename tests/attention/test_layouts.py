"""What is worked out once for a mask: the same readings, also after its tensors or the surroundings change."""

import pickle
from copy import copy, deepcopy

import pytest
import torch
from torch import Tensor

import regard
from regard import masks
from regard.attention.masks.mask import Mask

PADDING = masks.padding([2, 5])


def sides(keys: int = 5) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, length, 4) for length in (4, keys, keys)]


def exact(mask: Mask, tensors: list[Tensor]) -> Tensor:
    with regard.kernel("reference"):
        return regard.attend(
            *tensors, mask=mask.dense((2, 3), tensors[0].shape[-2], tensors[1].shape[-2])
        )


def test_a_mask_is_worked_out_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, calls = masks.padding([2, 5]) & masks.causal(align="start"), []
    window = type(mask).window

    def counted(self: Mask, *arguments: Tensor) -> Tensor:
        calls.append(arguments[0].numel())
        return window(self, *arguments)

    monkeypatch.setattr(type(mask), "window", counted)
    blocks = [regard.TransformerBlock(8, 2) for _ in range(3)]
    x = torch.randn(2, 5, 8)
    for block in blocks:
        x = block(x, mask=mask)
    assert sum(rows > 1 for rows in calls) == 1


@pytest.mark.parametrize("mask", [PADDING, PADDING & masks.causal(align="end"), ~PADDING])
def test_lengths_written_between_two_calls_count(mask: Mask) -> None:
    lengths = PADDING.lengths  # type: ignore[attr-defined]
    lengths.copy_(torch.tensor([2, 5]))
    regard.attend(*sides(), mask=mask)
    lengths.copy_(torch.tensor([4, 1]))
    assert torch.allclose(regard.attend(*sides(), mask=mask), exact(mask, sides()), atol=1e-6)
    lengths.copy_(torch.tensor([4, 6]))
    with pytest.raises(regard.ShapeError, match="a length is 6"):
        regard.attend(*sides(), mask=mask)


@pytest.mark.parametrize("writer", ["numpy", "data"])
def test_writes_that_torch_does_not_count_are_seen(writer: str) -> None:
    lengths = torch.tensor([2, 5])
    mask = masks.padding(lengths) & masks.causal(align="end")
    regard.attend(*sides(), mask=mask)
    (lengths.numpy() if writer == "numpy" else lengths.data)[0] = 4
    assert torch.allclose(regard.attend(*sides(), mask=mask), exact(mask, sides()), atol=1e-6)


def test_other_lengths_are_other_scores() -> None:
    mask = masks.causal(align="end")
    for keys in (5, 6, 5):
        assert torch.allclose(
            regard.attend(*sides(keys), mask=mask), exact(mask, sides(keys)), atol=1e-6
        )


def test_what_inference_made_serves_no_gradients() -> None:
    mask = masks.padding([2, 5]) & masks.causal(align="start")
    with torch.inference_mode():
        regard.attend(*sides(), mask=mask)
    tensors = [side.requires_grad_() for side in sides()]
    regard.attend(*tensors, mask=mask).sum().backward()
    assert all(side.grad is not None for side in tensors)


def test_lengths_made_in_inference_may_change_unseen() -> None:
    with torch.inference_mode():
        lengths = torch.tensor([2, 5])
        mask = masks.padding(lengths)
        regard.attend(*sides(), mask=mask)
        lengths.copy_(torch.tensor([4, 1]))
        assert torch.allclose(regard.attend(*sides(), mask=mask), exact(mask, sides()), atol=1e-6)


def test_a_function_of_positions_is_called_each_time() -> None:
    allowed = [1]
    mask = masks.as_mask(lambda query, key: key < allowed[0])
    for number in (1, 3):
        allowed[0] = number
        assert torch.allclose(regard.attend(*sides(), mask=mask), exact(mask, sides()), atol=1e-6)


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda mask: pickle.loads(pickle.dumps(mask))])
def test_copies_hold_the_rule_alone(copied: object) -> None:
    mask = masks.padding([2, 5])
    regard.attend(*sides(), mask=mask)
    assert "_kept" in vars(mask)
    assert vars(copied(mask)).keys() == {"lengths"}  # type: ignore[operator]
