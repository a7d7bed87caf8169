"""Plain calls that go straight to torch's fused attention: the readings and refusals of every other call."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import masks
from regard.attention.kernels.direct import read_directly
from regard.attention.masks.mask import Mask
from regard.attention.scores import DotLike

MASKS = {
    "none": None,
    "causal": masks.causal(align="start"),
    "end": masks.causal(align="end"),
    "padding": masks.padding([0, 3]),
    "both": masks.padding([2, 5]) & masks.causal(align="start"),
    "one length": masks.padding([3, 3]),
}


def sides(*batch: int, queries: int = 4, keys: int = 5, width: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*batch, length, 3) for length in (queries, keys)] + [
        torch.randn(*batch, keys, width)
    ]


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
@pytest.mark.parametrize("width", [3, 2])
def test_readings_are_those_of_the_reference(
    mask: Mask | None, batch: tuple[int, ...], width: int
) -> None:
    tensors = sides(*batch, width=width)
    reading = read_directly(*tensors, mask)
    with regard.kernel("reference"):
        expected = regard.attend(*(side.double() for side in tensors), mask=mask)
    assert reading is not None
    assert torch.allclose(reading.double(), expected, atol=1e-6)


@pytest.mark.parametrize("mask", [MASKS["padding"], MASKS["both"], MASKS["one length"]])
def test_hidden_numbers_have_no_effect(mask: Mask) -> None:
    query, key, value = sides(2)
    clean = regard.attend(query, key, value, mask=mask)
    hidden = ~mask.dense((2,), 4, 5).any(-2)
    key[hidden], value[hidden] = torch.nan, torch.inf
    assert torch.allclose(regard.attend(query, key, value, mask=mask), clean)


def test_whatever_else_is_left_to_the_request() -> None:
    query, key, value = sides(2)
    assert read_directly(query.requires_grad_(), key, value, None) is None
    query = query.detach()
    assert read_directly(query, key[:1], value[:1], None) is None
    assert read_directly(query, key, value, torch.ones(4, 5, dtype=torch.bool)) is None
    assert read_directly(query.half(), key.half(), value.half(), None) is None
    with regard.kernel("matmul"):
        assert read_directly(query, key, value, None) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert read_directly(query, key, value, None) is None
    with pytest.raises(regard.ShapeError, match="value has 5 rows, the memory holds 4 keys"):
        regard.attend(query, key[:, :4], value)


@pytest.mark.parametrize("name", ["none", "causal", "padding"])
@pytest.mark.parametrize("is_alike", [False, True])
def test_short_rows_have_second_gradients(name: str, is_alike: bool) -> None:
    mask = MASKS[name]
    tensors = [side.double().requires_grad_() for side in sides(2, queries=5)]
    assert regard.explain(*tensors, mask=mask).kernel == "sdpa"
    inputs = tensors[:1] if is_alike else tensors

    def attend(*numbers: Tensor) -> Tensor:
        query, key, value = numbers * 3 if is_alike else numbers
        return regard.attend(query, key, value, mask=mask)

    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


class ModuleLast(DotLike, nn.Module):
    """The dot product, as a score whose module is the last base."""

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, 1.0


class ModuleBefore(nn.Module, DotLike):
    """The same with the bases in the other order."""

    factors = ModuleLast.factors


class Twice(ModuleBefore):
    """No dot product any more."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return 2 * (query @ key.mT)


@pytest.mark.parametrize("kind", [ModuleLast, ModuleBefore])
def test_a_module_is_a_dot_product_with_its_bases_in_either_order(kind: type[nn.Module]) -> None:
    query, key, value = sides(2)
    explanation = regard.explain(query, key, value, score=kind())
    assert explanation.kernel == "sdpa"
    assert "not a dot product" not in str(explanation)
    reading = regard.attend(query, key, value, score=kind())
    assert torch.allclose(reading, regard.attend(query, key, value, score="dot"), atol=1e-6)


def test_a_module_with_a_forward_of_its_own_is_called() -> None:
    query, key, value = sides(2)
    explanation = regard.explain(query, key, value, score=Twice())
    assert "Twice has methods or hooks of its own" in explanation.refused["sdpa"]
    expected = regard.attend(2 * query, key, value, score="dot")
    assert torch.allclose(regard.attend(query, key, value, score=Twice()), expected, atol=1e-6)
