"""torch's fused attention: plain calls, their masks, what these hide, and gradients."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import masks
from regard.attention.kernels import serve
from regard.attention.kernels.request import ask
from regard.attention.kernels.sdpa import fused_with_sums
from regard.attention.masks.mask import Mask
from regard.attention.normalisers import Softmax
from regard.attention.scores import Cosine, Dot, DotLike, General, Score

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
    reading = regard.attend(*tensors, mask=mask)
    with regard.kernel("reference"):
        expected = regard.attend(*(side.double() for side in tensors), mask=mask)
    fastest = "matmul" if len(batch) == 1 else "sdpa"  # of few scores
    assert regard.explain(*tensors, mask=mask).kernel == fastest
    assert torch.allclose(reading.double(), expected, atol=1e-6)


@pytest.mark.parametrize("mask", [MASKS["padding"], MASKS["both"], MASKS["one length"]])
def test_hidden_numbers_have_no_effect(mask: Mask) -> None:
    query, key, value = sides(2)
    clean = regard.attend(query, key, value, mask=mask)
    hidden = ~mask.dense((2,), 4, 5).any(-2)
    key[hidden], value[hidden] = torch.nan, torch.inf
    assert torch.allclose(regard.attend(query, key, value, mask=mask), clean)


@pytest.mark.parametrize("name", ["causal", "both"])
def test_hidden_infinities_have_no_effect_on_plain_calls(name: str) -> None:
    query, key, value = sides(2, queries=5)
    clean = regard.attend(query, key, value, mask=MASKS[name])
    key[:, -1], value[:, -1] = torch.inf, torch.nan
    spoilt = regard.attend(query, key, value, mask=MASKS[name])
    assert torch.allclose(spoilt[:, :-1], clean[:, :-1])


def test_a_plain_call_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, mask = sides(2, 3, queries=5), MASKS["causal"]
    expected = [regard.attend(*tensors), regard.attend(*tensors, mask=mask)]
    monkeypatch.setattr("regard.attention.attend.ask", None)
    assert torch.equal(regard.attend(*tensors), expected[0])
    assert torch.equal(regard.attend(*tensors, mask=mask), expected[1])
    with pytest.raises(TypeError, match="not callable"):
        regard.attend(*tensors, bias=torch.zeros(5, 5))


def test_a_changed_mask_is_laid_anew_in_plain_calls() -> None:
    query, key, value = sides(2)
    lengths = torch.tensor([1, 4])
    mask = masks.padding(lengths)
    assert torch.equal(regard.attend(query, key, value, mask=mask)[0, 0], value[0, 0])
    lengths[0] = 5
    assert torch.allclose(
        regard.attend(query, key, value, mask=mask)[0], regard.attend(query[0], key[0], value[0])
    )


def test_devices_and_precisions_of_plain_calls_are_refused_by_name() -> None:
    query, key, value = sides(2)
    with pytest.raises(ValueError, match="value is on meta, the query on cpu"):
        regard.attend(query, key, value.to("meta"))
    with pytest.raises(TypeError, match="pass one dtype for all three"):
        regard.attend(query, key, value.double())
    with pytest.raises(TypeError, match="pass floating point tensors"):
        regard.attend(query.long(), key.long(), value.long())


def test_shapes_and_precisions_are_checked_in_every_call() -> None:
    query, key, value = sides(2)
    for _ in range(2):
        regard.attend(query, key, value)
        with pytest.raises(regard.ShapeError, match="value has 5 rows, the memory holds 4 keys"):
            regard.attend(query, key[:, :4], value)
        with torch.autocast("cpu", torch.bfloat16):
            regard.attend(query, key.bfloat16(), value)
        with pytest.raises(TypeError, match="pass one dtype for all three"):
            regard.attend(query, key.bfloat16(), value)
        with pytest.raises(TypeError, match="pass a tensor"):
            regard.attend(query, key, [[1.0]])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="key is on meta, the query on cpu"):
            regard.attend(query, key.to("meta"), value)


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("mask", [masks.causal(align="start"), masks.padding([3, 2])])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_hidden_keys_do_not_reach_gradients(mask: Mask, spoilt: float, is_recorded: bool) -> None:
    query, key, value = (side.double() for side in sides(2))
    hidden = ~mask.dense((2,), 4, 5).expand(2, 4, 5).any(-2)
    upstream = torch.randn(2, 4, 3, dtype=torch.float64)

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        assert regard.explain(*leaves, mask=mask).kernel == "sdpa"
        reading = regard.attend(*leaves, mask=mask)
        return torch.autograd.grad(reading, leaves, upstream, create_graph=is_recorded)

    clean = gradients(query, key, value)
    key, value = (side.masked_fill(hidden[..., None], spoilt) for side in (key, value))
    for exact, gradient in zip(clean, gradients(query, key, value), strict=True):
        assert torch.allclose(gradient, exact)
    assert (gradients(query, key, value)[1][hidden] == 0).all()


def test_an_ordinary_call_sums_no_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[Tensor] = []
    monkeypatch.setattr(serve, "are_finite", lambda *tensors: summed.extend(tensors) or True)
    tensors = [side.requires_grad_() for side in sides(2)]
    regard.attend(*tensors, mask=masks.causal(align="start")).sum().backward()
    assert not summed


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
    query, key, value = sides(2, 3)
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


@pytest.mark.parametrize("score", [None, Dot(), Cosine(-3.0), General(3, 3)], ids=str)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3, 2)])
def test_one_pass_gives_the_reading_and_its_log_normalisers(
    score: Score | None, batch: tuple[int, ...]
) -> None:
    tensors = sides(*batch)
    request = ask(*tensors, score=score, normaliser=Softmax(0.6))
    with torch.no_grad():
        sums = fused_with_sums(request, tensors[2])
        scores = request.score(*tensors[:2]).double() / 0.6
    assert sums is not None
    torch.testing.assert_close(sums[1].double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-5)
    expected = scores.softmax(-1) @ tensors[2].double()
    torch.testing.assert_close(sums[0].double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", ["no keys", "widths", "halves", "gradients", "normaliser"])
def test_one_pass_leaves_other_requests_alone(case: str) -> None:
    query, key, value = sides(
        2, keys=0 if case == "no keys" else 5, width=2 if case == "widths" else 3
    )
    if case == "halves":
        query, key, value = query.half(), key.half(), value.half()
    query.requires_grad_(case == "gradients")
    normaliser = "hard" if case == "normaliser" else None
    assert fused_with_sums(ask(query, key, value, normaliser=normaliser), value) is None
