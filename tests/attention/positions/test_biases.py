"""Biases of scores: ALiBi's slopes, T5's buckets, and what attention makes of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.attention.positions import Alibi, RelativeBias, alibi_slopes, relative_buckets
from regard.attention.shapes import ShapeError


def published_slopes(heads: int) -> list[float]:
    """What the paper says in words, for any number: the power's below, then the odd ones of the power's above."""
    below = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 / below * (h + 1)) for h in range(below)]
    between = [2 ** (-8 / (2 * below) * (h + 1)) for h in range(0, 2 * below, 2)]
    return (slopes + between)[:heads]


@given(st.integers(1, 130))
def test_slopes_are_the_published_ones(heads):
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(published_slopes(heads)))


@pytest.mark.parametrize("heads", [1, 2, 8, 64])
def test_slopes_of_a_power_of_two_are_geometric(heads):
    slopes = alibi_slopes(heads).double()
    assert slopes[-1].item() == pytest.approx(2**-8)
    torch.testing.assert_close(slopes[1:] / slopes[:-1], slopes[:1].expand(heads - 1))


def test_alibi_falls_with_distance_on_both_sides():
    bias = Alibi(3)(4, 6, start=1)
    for h, slope in enumerate(published_slopes(3)):
        for i in range(4):
            for j in range(6):
                assert bias[h, i, j].item() == pytest.approx(-slope * abs(1 + i - j))


def test_alibi_is_that_of_transformers():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for heads in (1, 4, 6, 16, 20):
        theirs = bloom.build_alibi_tensor(torch.ones(1, 7), heads, torch.float32)
        bias_of_last = Alibi(heads)(1, 7, start=6)[:, 0]
        theirs = theirs.view(heads, 7)  # they leave out what is one for all keys of a query
        torch.testing.assert_close(bias_of_last - bias_of_last[:, :1], theirs - theirs[:, :1])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (64, 500), (4, 3)])
def test_buckets_are_those_of_transformers(bidirectional, buckets, furthest):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    offset = torch.arange(-3 * furthest, 3 * furthest + 1)
    theirs = modeling.T5Attention._relative_position_bucket(
        offset, bidirectional=bidirectional, num_buckets=buckets, max_distance=furthest
    )
    actual_relative_buckets = relative_buckets(
        offset, buckets=buckets, furthest=furthest, bidirectional=bidirectional
    )
    assert torch.equal(actual_relative_buckets, theirs)


@given(quarter=st.integers(1, 20), beyond=st.integers(1, 300), bidirectional=st.booleans())
def test_buckets_are_in_range_and_never_nearer_for_what_is_further(quarter, beyond, bidirectional):
    buckets = 4 * quarter
    near = quarter if bidirectional else 2 * quarter
    furthest = near + beyond
    distance = torch.arange(2 * furthest)
    keys_before = relative_buckets(
        -distance, buckets=buckets, furthest=furthest, bidirectional=bidirectional
    )
    assert torch.equal(keys_before[:near], distance[:near])
    assert keys_before.diff().ge(0).all()
    assert keys_before[furthest:].eq(2 * near - 1).all()
    keys_after = relative_buckets(
        distance[1:], buckets=buckets, furthest=furthest, bidirectional=bidirectional
    )
    assert (
        torch.equal(keys_after, keys_before[1:] + buckets // 2)
        if bidirectional
        else keys_after.eq(0).all()
    )


def test_a_relative_bias_reads_its_table():
    relative_bias = RelativeBias(3, buckets=8, furthest=9, bidirectional=False)
    bias = relative_bias(2, 6, start=4)
    assert bias.shape == (3, 2, 6)
    for i in range(2):
        for j in range(6):
            bucket = relative_buckets(
                torch.tensor(j - i - 4), buckets=8, furthest=9, bidirectional=False
            )
            assert torch.equal(bias[:, i, j], relative_bias.weight[bucket])
    bias.sum().backward()
    assert relative_bias.weight.grad.sum() == 36


@pytest.mark.parametrize("make_bias", [Alibi(2), RelativeBias(2)], ids=["alibi", "relative"])
@torch.no_grad()
def test_looks_steps_and_packed_sentences_have_the_same_bias(make_bias):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 7, 4)
    causal = regard.masks.causal(align="start")
    full_reading, look = regard.read(query, key, value, bias=make_bias(7, 7), mask=causal)
    scores = (query @ key.mT) / 2 + make_bias(7, 7)
    exact = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(look.weights(), exact)
    torch.testing.assert_close(full_reading, exact @ value)
    for t in range(7):
        step = regard.attend(
            query[..., t : t + 1, :],
            key[..., : t + 1, :],
            value[..., : t + 1, :],
            bias=make_bias(1, t + 1, start=t),
        )
        torch.testing.assert_close(step[..., 0, :], full_reading[..., t, :])
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    packed = regard.attend(
        query, key, value, bias=make_bias(7, 7), mask=regard.masks.documents(ids)
    )
    readings = [
        regard.attend(*(x[..., rows, :] for x in (query, key, value)), bias=make_bias(size, size))
        for rows, size in ((slice(0, 3), 3), (slice(3, 7), 4))
    ]
    torch.testing.assert_close(packed, torch.cat(readings, -2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: alibi_slopes(0), "heads is 0"),
        (lambda: RelativeBias(0), "heads is 0"),
        (lambda: RelativeBias(2, buckets=6), "buckets is 6: pass a multiple of 4"),
        (lambda: RelativeBias(2, buckets=0), "buckets is 0"),
        (lambda: RelativeBias(2, furthest=8), "furthest is 8: pass more than the 8"),
        (
            lambda: relative_buckets(torch.tensor(1), buckets=3, bidirectional=False),
            "multiple of 2",
        ),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_places_below_zero_are_refused():
    with pytest.raises(ShapeError, match="from place -1 on"):
        Alibi(2)(1, 3, start=-1)
