"""The laws of attention, for every kernel."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.choose import KERNELS

torch.manual_seed(5)
# What each kernel is for; the others serve a scaled dot product.
SCORES = {"cpu": scores.Additive(8, 8, 6, bias=True).double()}
EVERY_KERNEL = pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "triton"])
NORMALISERS = [
    normalisers.Softmax(),
    normalisers.Softmax(0.1),
    normalisers.Hard(),
    normalisers.Hard("straight_through"),
    normalisers.Sparsemax(),
    normalisers.Entmax(1.5),
    normalisers.Entmax(1.1),
    normalisers.Entmax(3.0),
]
EVERY_NORMALISER = pytest.mark.parametrize("normaliser", NORMALISERS, ids=str)
LENGTHS = st.integers(1, 9)


def draw(queries: int = 5, keys: int = 7, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value in float64, each wanting its gradient."""
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    shapes = ((*batch, queries, 8), (*batch, keys, 8), (*batch, keys, 4))
    query, key, value = (
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes
    )
    return query, key, value


def draw_mask(queries: int, keys: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(queries, keys, generator=generator) > 0.5


def gradients(reading: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(reading.square().sum() + reading.sum(), leaves)


@EVERY_KERNEL
def test_true_may_be_read_and_false_may_not(kernel: str) -> None:
    query, key, value = draw()
    mask = torch.zeros(5, 7, dtype=torch.bool)
    mask[:, 2] = True
    with regard.kernel(kernel):
        reading = regard.attend(query, key, value, mask=mask, score=SCORES.get(kernel))
    assert torch.allclose(reading, value[2].expand(5, 4))


@EVERY_KERNEL
@given(queries=LENGTHS, keys=LENGTHS, seed=st.integers(0, 99))
def test_a_row_with_nothing_to_read_is_zero_with_zero_gradient(
    kernel: str, queries: int, keys: int, seed: int
) -> None:
    query, key, value = draw(queries, keys)
    mask = draw_mask(queries, keys, seed)
    blank = seed % queries
    mask[blank] = False
    with regard.kernel(kernel):
        reading, look = regard.read(query, key, value, mask=mask, score=SCORES.get(kernel))
    assert not reading[blank].any()
    assert not look.weights()[blank].any()
    slopes = gradients(reading, query, key, value)
    assert all(slope.isfinite().all() for slope in slopes)
    assert not slopes[0][blank].any()


@EVERY_KERNEL
def test_rows_that_are_all_blank(kernel: str) -> None:
    query, key, value = draw()
    with regard.kernel(kernel):
        reading = regard.attend(
            query, key, value, mask=torch.zeros(5, 7, dtype=torch.bool), score=SCORES.get(kernel)
        )
    assert not reading.any()
    assert not any(gradient.any() for gradient in gradients(reading, query, key, value))


@EVERY_NORMALISER
def test_blank_rows_and_masked_keys_under_every_normaliser(
    normaliser: normalisers.Normaliser,
) -> None:
    query, key, value = draw()
    mask = draw_mask(5, 7, 3)
    mask[0], mask[:, 6] = False, False
    reading, look = regard.read(query, key, value, mask=mask, normaliser=normaliser)
    weights = look.weights()
    assert not weights[~mask].any()
    expected = mask.any(-1).double()
    assert torch.allclose(weights.sum(-1), expected)
    slopes = torch.autograd.grad(reading.square().sum(), (query, key, value), allow_unused=True)
    for slope in slopes:
        assert slope is None or slope.isfinite().all()
    assert not slopes[2][6].any()


@EVERY_KERNEL
@given(queries=LENGTHS, keys=LENGTHS, seed=st.integers(0, 99))
def test_a_masked_key_has_no_weight_and_no_gradient(
    kernel: str, queries: int, keys: int, seed: int
) -> None:
    query, key, value = draw(queries, keys)
    mask = draw_mask(queries, keys, seed)
    hidden = seed % keys
    mask[:, hidden] = False
    with regard.kernel(kernel):
        reading, look = regard.read(query, key, value, mask=mask, score=SCORES.get(kernel))
        moved = regard.attend(
            query,
            key + 5 * (~mask.any(0)).double()[:, None],
            value,
            mask=mask,
            score=SCORES.get(kernel),
        )
    assert not look.weights()[~mask].any()
    assert torch.equal(reading, moved)
    _, for_key, for_value = gradients(reading, query, key, value)
    assert not for_key[hidden].any()
    assert not for_value[hidden].any()


@EVERY_NORMALISER
@given(queries=LENGTHS, keys=LENGTHS)
def test_weights_sum_to_one(normaliser: normalisers.Normaliser, queries: int, keys: int) -> None:
    query, key, _ = draw(queries, keys, 2)
    weights = regard.look(query, key, normaliser=normaliser).weights()
    assert (weights >= 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, queries, dtype=torch.float64))


@EVERY_KERNEL
@given(queries=LENGTHS, keys=LENGTHS, shift=st.floats(-50, 50))
def test_shifting_a_row_of_scores_changes_nothing(
    kernel: str, queries: int, keys: int, shift: float
) -> None:
    query, key, value = draw(queries, keys)
    shifts = shift * torch.arange(queries, dtype=torch.float64)[:, None]
    with regard.kernel(kernel):
        plain = regard.attend(query, key, value, score=SCORES.get(kernel))
        shifted = regard.attend(query, key, value, bias=shifts, score=SCORES.get(kernel))
    assert torch.allclose(plain, shifted)


@EVERY_NORMALISER
def test_shifting_changes_nothing_under_any_normaliser(
    normaliser: normalisers.Normaliser,
) -> None:
    query, key, _ = draw()
    plain = regard.look(query, key, normaliser=normaliser).weights()
    shifted = regard.look(query, key, normaliser=normaliser, bias=torch.full((5, 1), 20.0))
    assert torch.allclose(plain, shifted.weights())


@EVERY_KERNEL
@given(queries=LENGTHS, keys=LENGTHS, seed=st.integers(0, 99))
def test_permuting_queries_permutes_readings_and_permuting_the_memory_changes_nothing(
    kernel: str, queries: int, keys: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = draw(queries, keys)
    order = torch.randperm(queries, generator=generator)
    stored = torch.randperm(keys, generator=generator)
    with regard.kernel(kernel):
        plain = regard.attend(query, key, value, score=SCORES.get(kernel))
        permuted = regard.attend(query[order], key[stored], value[stored], score=SCORES.get(kernel))
    assert torch.allclose(plain[order], permuted)


@EVERY_KERNEL
@pytest.mark.parametrize(("queries", "keys"), [(3, 6), (6, 3), (4, 4), (1, 5)])
def test_causal_alignment_is_explicit(kernel: str, queries: int, keys: int) -> None:
    query, key, value = draw(queries, keys)
    for align, shift in (("start", 0), ("end", keys - queries)):
        with regard.kernel(kernel):
            reading = regard.attend(
                query,
                key,
                value,
                mask=masks.causal(align=align),
                score=SCORES.get(kernel),  # type: ignore[arg-type]
            )
        for row in range(queries):
            count = max(0, min(keys, row + shift + 1))
            alone = regard.attend(
                query[row : row + 1], key[:count], value[:count], score=SCORES.get(kernel)
            )
            assert torch.allclose(reading[row : row + 1], alone)


def test_causal_has_no_default_alignment() -> None:
    with pytest.raises(TypeError, match="align"):
        masks.causal()  # type: ignore[call-arg]


@EVERY_KERNEL
def test_a_bias_of_minus_infinity_is_a_mask(kernel: str) -> None:
    query, key, value = draw(5, 7, 2)
    mask = draw_mask(5, 7, 1)
    mask[2] = False
    bias = torch.zeros(5, 7, dtype=torch.float64).masked_fill(~mask, -torch.inf).requires_grad_()
    with regard.kernel(kernel):
        masked = regard.attend(query, key, value, mask=mask, score=SCORES.get(kernel))
        biased = regard.attend(query, key, value, bias=bias, score=SCORES.get(kernel))
    assert torch.allclose(masked, biased)
    slope = gradients(biased, bias)[0]
    assert slope.isfinite().all()
    assert not slope[~mask].any()
    assert slope[mask].any()


@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_a_masked_key_may_hold_anything(garbage: float) -> None:
    query, key, _ = (tensor.detach() for tensor in draw())
    mask = torch.arange(7) < 5
    spoilt = key.clone()
    spoilt[5:] = garbage
    clean = regard.look(query, key, mask=mask).weights()
    assert torch.equal(regard.look(query, spoilt, mask=mask).weights(), clean)


@EVERY_NORMALISER
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf")])
def test_a_bias_of_minus_infinity_hides_anything_from_a_look(
    garbage: float, normaliser: normalisers.Normaliser
) -> None:
    query, key, _ = (tensor.detach() for tensor in draw())
    bias = torch.zeros(7, dtype=torch.float64)
    bias[5] = -torch.inf
    clean = regard.look(query, key, bias=bias, normaliser=normaliser)
    key = key.clone()
    key[5] = garbage
    spoilt = regard.look(query, key, bias=bias, normaliser=normaliser)
    assert torch.equal(spoilt.entropy(), clean.entropy())
    assert torch.equal(spoilt.argmax(), clean.argmax())
    assert torch.equal(spoilt.top(7)[1], clean.top(7)[1])
    assert torch.equal(spoilt.received(), clean.received())
    assert torch.equal(spoilt.distance(), clean.distance())
    assert torch.equal(spoilt.map(2, 2), clean.map(2, 2))


GARBAGE = pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf")])


@EVERY_KERNEL
@GARBAGE
@pytest.mark.parametrize("side", ["key", "value", "both"])
def test_what_may_not_be_read_may_hold_anything(kernel: str, garbage: float, side: str) -> None:
    """Key 2 is for queries from 2 on, key 5 for nobody: the readings and gradients of the others."""
    tensors = draw(5, 7, 2)
    mask = masks.causal(align="start") & (torch.arange(7) != 5)
    spoilt = [tensor.detach().clone() for tensor in tensors]
    for at, tensor in enumerate(spoilt):
        if at and side in ("both", ("key", "value")[at - 1]):
            tensor[..., [2, 5], :] = garbage
        tensor.requires_grad_()
    results = []
    for inputs in (tensors, spoilt):
        with regard.kernel(kernel):
            reading = regard.attend(*inputs, mask=mask, score=SCORES.get(kernel))
        slopes = torch.autograd.grad(reading[:, :2].sin().sum(), inputs)
        results.append([reading[:, :2], *slopes])
    for clean, actual in zip(*results, strict=True):
        assert torch.allclose(clean, actual)


@EVERY_KERNEL
@GARBAGE
@pytest.mark.parametrize("side", ["key", "value", "both"])
def test_a_single_query_may_be_kept_from_anything(kernel: str, garbage: float, side: str) -> None:
    """As a step of a decoder that is learnt from: readings, and gradients of all three."""
    tensors, mask = draw(1, 7, 2), torch.arange(7) < 4
    results = []
    for spoilt in (False, True):
        inputs = [tensor.detach().clone() for tensor in tensors]
        for at, tensor in enumerate(inputs):
            if spoilt and at and side in ("both", ("key", "value")[at - 1]):
                tensor[..., 4:, :] = garbage
            tensor.requires_grad_()
        with regard.kernel(kernel):
            reading = regard.attend(*inputs, mask=mask, score=SCORES.get(kernel))
        results.append([reading, *torch.autograd.grad(reading.sin().sum(), inputs)])
    for clean, actual in zip(*results, strict=True):
        assert torch.allclose(clean, actual)


@EVERY_KERNEL
@GARBAGE
def test_a_query_spoils_its_own_reading_and_nothing_else(kernel: str, garbage: float) -> None:
    """Query 1 may read nothing, query 3 may read: both hold garbage."""
    tensors, mask = draw(5, 7, 2), draw_mask(5, 7, 1)
    mask[1], mask[3] = False, True
    other_queries = [0, 1, 2, 4]
    results = []
    for spoilt in (False, True):
        inputs = [tensor.detach().clone() for tensor in tensors]
        if spoilt:
            inputs[0][:, [1, 3]] = garbage
        for tensor in inputs:
            tensor.requires_grad_()
        with regard.kernel(kernel):
            reading = regard.attend(*inputs, mask=mask, score=SCORES.get(kernel))
        slopes = torch.autograd.grad(reading[:, other_queries].sin().sum(), inputs)
        results.append([reading[:, other_queries], *slopes])
    for clean, actual in zip(*results, strict=True):
        assert torch.allclose(clean, actual)
    assert not results[1][0][:, 1].any()


LEARNED = {
    "scaled_dot": scores.ScaledDot(),
    "cosine": scores.Cosine(3.0),
    "general": scores.General(8, 8).double(),
    "additive": scores.Additive(8, 8, 6, bias=True).double(),
    "capped": scores.SoftCap(scores.Additive(8, 8, 6).double(), 2.0),
    "function": lambda query, key: query @ key.mT,
}
EVERY_SCORE = pytest.mark.parametrize("score", LEARNED.values(), ids=LEARNED)


def leaves_of(score: object, *given_: Tensor) -> list[Tensor]:
    """The tensors given and the parameters of the score."""
    owned = list(score.parameters()) if isinstance(score, torch.nn.Module) else []
    return [*given_, *owned]


def each_row(look: regard.Look) -> dict[str, Tensor]:
    """What can be trained with, (*batch, queries) or (*batch, queries, any)."""
    return {
        "weights": look.weights(),
        "window": look.weights(rows=range(5), columns=range(7)),
        "entropy": look.entropy(),
        "perplexity": look.perplexity(),
        "log_normaliser": look.log_normaliser(),
        "mean": look.mean_heads().weights().unsqueeze(0),
        "entropy of mean": look.mean_heads().entropy().unsqueeze(0),
    }


@EVERY_SCORE
@GARBAGE
@pytest.mark.parametrize("through", ["look", "read"])
def test_what_may_not_be_read_spoils_no_gradient_of_a_look(
    through: str, garbage: float, score: object
) -> None:
    """Key 2 of the first head is for queries from 2 on, key 5 for nobody."""
    mask = masks.causal(align="start") & (torch.arange(7) != 5)
    results = []
    for spoilt in (False, True):
        query, key, value = (tensor.detach().clone() for tensor in draw(5, 7, 2))
        if spoilt:
            key[0, 2], key[:, 5] = garbage, garbage
        inputs = leaves_of(score, query.requires_grad_(), key.requires_grad_())
        if through == "look":
            look = regard.look(query, key, mask=mask, score=score)
            options = {}
        else:
            reading, look = regard.read(query, key, value, mask=mask, score=score)
            options = {"reading": reading}
        options |= each_row(look)
        options = {name: part[:, :2] for name, part in options.items()}
        options["received"] = look.received(rows=range(2))
        results.append(
            {
                name: [part, *torch.autograd.grad(part.sin().sum(), inputs, retain_graph=True)]
                for name, part in options.items()
            }
        )
    for name in results[0]:
        for clean, actual in zip(results[0][name], results[1][name], strict=True):
            assert torch.allclose(clean, actual), name


@EVERY_SCORE
@GARBAGE
def test_a_query_spoils_its_own_row_of_a_look_and_nothing_else(
    garbage: float, score: object
) -> None:
    """Query 1 may read nothing, query 3 may read: both hold garbage."""
    mask, other_queries = draw_mask(5, 7, 1), [0, 2, 4]
    mask[1], mask[3] = False, True
    results = []
    for spoilt in (False, True):
        query, key, _ = (tensor.detach().clone() for tensor in draw(5, 7, 2))
        if spoilt:
            query[:, [1, 3]] = garbage
        inputs = leaves_of(score, query.requires_grad_(), key.requires_grad_())
        look = regard.look(query, key, mask=mask, score=score)
        rows_by_answer = {name: part[:, other_queries] for name, part in each_row(look).items()}
        rows_by_answer["received"] = look.received(rows=[0, 1, 2, 4])
        results.append(
            {
                name: [part, *torch.autograd.grad(part.sin().sum(), inputs, retain_graph=True)]
                for name, part in rows_by_answer.items()
            }
        )
        assert not look.weights()[:, 1].any()
        assert not look.entropy()[:, 1].any()
    for name in results[0]:
        for clean, actual in zip(results[0][name], results[1][name], strict=True):
            assert torch.allclose(clean, actual), name


def test_a_look_at_what_may_be_read_is_not_hidden() -> None:
    query, key, _ = draw()
    key = key.detach().clone()
    key[3] = torch.nan
    look = regard.look(query, key, mask=masks.causal(align="start"))
    for answer in (look.entropy(), look.log_normaliser(), look.weights().sum(-1)):
        assert answer[:3].isfinite().all()
        assert answer[3:].isnan().all()
    assert look.received()[:3].isnan().all()


@EVERY_KERNEL
def test_what_is_read_is_not_hidden(kernel: str) -> None:
    query, key, value = (tensor.detach() for tensor in draw())
    key[3] = torch.nan
    with regard.kernel(kernel):
        reading = regard.attend(
            query, key, value, mask=masks.causal(align="start"), score=SCORES.get(kernel)
        )
    assert reading[:3].isfinite().all()
    assert reading[3:].isnan().all()


def test_a_normaliser_may_learn_its_temperature_under_a_mask() -> None:
    query, key, value = draw()
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    mask = draw_mask(5, 7, 3)
    mask[1] = False

    def normaliser(rows: Tensor) -> Tensor:
        return torch.softmax(rows / temperature, -1)

    fixed = regard.attend(query, key, value, mask=mask, normaliser=normalisers.Softmax(0.7))
    reading = regard.attend(query, key, value, mask=mask, normaliser=normaliser)
    assert torch.allclose(reading, fixed)
    (slope,) = torch.autograd.grad(reading.square().sum(), temperature)
    step = 1e-6
    with torch.no_grad():
        sides = [
            regard.attend(query, key, value, mask=mask, normaliser=normalisers.Softmax(0.7 + s))
            for s in (step, -step)
        ]
    expected = (sides[0].square().sum() - sides[1].square().sum()) / (2 * step)
    assert slope.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_temperature_that_is_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"for one that is learned, normaliser=lambda rows"):
        normalisers.Softmax(torch.tensor(0.7))  # type: ignore[arg-type]
