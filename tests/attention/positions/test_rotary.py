"""Rotations: lengths stay, and scores depend on distances alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.attention.heads import MultiHeadAttention
from regard.attention.positions import Rotary, rotate
from regard.attention.shapes import ShapeError

PAIRINGS = ["halves", "interleaved"]
pairings = pytest.mark.parametrize("pairing", PAIRINGS)


def random_tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pairings
@pytest.mark.parametrize("width", [None, 0, 4])
def test_it_is_the_papers_equation(pairing, width):
    x, places = random_tensor(3, 6), torch.tensor([0, 7, 1000])
    actual = rotate(x, places, base=100.0, width=width, pairing=pairing)
    turning = 6 if width is None else width
    for row, t in enumerate(places.tolist()):
        expected = x[row].clone()
        for i in range(turning // 2):
            a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + turning // 2)
            angle = t * 100.0 ** (-2 * i / turning)
            pair = torch.complex(x[row, a], x[row, b]) * complex(math.cos(angle), math.sin(angle))
            expected[a], expected[b] = pair.real, pair.imag
        torch.testing.assert_close(actual[row], expected)


@given(
    start=st.integers(0, 50_000),
    length=st.integers(1, 9),
    pairs=st.integers(1, 5),
    unrotated_width=st.integers(0, 3),
    pairing=st.sampled_from(PAIRINGS),
    base=st.floats(2.0, 1e6),
)
def test_scores_depend_on_distance_and_lengths_stay(
    start, length, pairs, unrotated_width, pairing, base
):
    turn = Rotary(base=base, width=2 * pairs, pairing=pairing)
    query, key = (
        random_tensor(length, 2 * pairs + unrotated_width),
        random_tensor(length, 2 * pairs + unrotated_width).flip(0),
    )
    scores_at_start = turn(query) @ turn(key).mT
    scores_later = turn(query, start) @ turn(key, start).mT
    torch.testing.assert_close(scores_at_start, scores_later, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(turn(query, start).norm(dim=-1), query.norm(dim=-1))


def test_one_pairing_is_the_other_with_channels_permuted():
    x, places = random_tensor(5, 8), torch.arange(5)
    order = torch.arange(8).view(2, 4).T.flatten()
    torch.testing.assert_close(
        rotate(x, places)[:, order], rotate(x[:, order], places, pairing="interleaved")
    )


def test_half_precision_is_turned_in_single():
    x = random_tensor(4, 8).half()
    actual = rotate(x, torch.arange(4) + 30_000)
    assert actual.dtype == torch.float16
    exact = rotate(x.double(), torch.arange(4) + 30_000)
    torch.testing.assert_close(actual.double(), exact, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("turn", "error", "message"),
    [
        (Rotary(), ShapeError, "5 of 5 channels"),
        (Rotary(width=6), ShapeError, "6 of 5 channels"),
        (Rotary(width=3), ShapeError, "3 of 5 channels"),
        (Rotary(base=0.0), ValueError, "base is 0"),
        (Rotary(base=math.inf), ValueError, "base is inf"),
    ],
)
def test_what_cannot_turn_is_refused(turn, error, message):
    with pytest.raises(error, match=message):
        turn(torch.ones(2, 5))
    with pytest.raises(error, match=message):
        MultiHeadAttention(10, heads=2, rotary=turn)


@pytest.mark.parametrize(
    ("x", "places", "error", "message"),
    [
        (torch.ones(4), torch.arange(4), ShapeError, r"vectors have shape \(4,\)"),
        (torch.ones(2, 4), torch.arange(3), ShapeError, r"places \(3,\): pass"),
        (torch.ones(2, 4), torch.tensor(1), ShapeError, r"places \(\): pass"),
        (torch.ones(2, 4).long(), torch.arange(2), ValueError, "vectors are torch.int64"),
    ],
)
def test_vectors_and_places_that_do_not_fit_are_refused(x, places, error, message):
    with pytest.raises(error, match=message):
        rotate(x, places)
    if x.dim() < 2:
        with pytest.raises(error, match=message):
            Rotary()(x)


def test_a_pairing_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'thirds'"):
        rotate(torch.ones(2, 4), torch.arange(2), pairing="thirds")


def attention(**changes: object) -> MultiHeadAttention:
    torch.manual_seed(1)
    return MultiHeadAttention(8, heads=2, rotary=Rotary(**changes)).double().eval()


def test_a_head_turns_queries_and_keys_and_no_values():
    module, x = attention(pairing="interleaved"), random_tensor(2, 5, 8)
    query, key, value = (
        projection(x).unflatten(-1, (2, 4)).transpose(1, 2)
        for projection in (module.query_projection, module.key_projection, module.value_projection)
    )
    places = torch.arange(5)
    turned = (rotate(each, places, pairing="interleaved") for each in (query, key))
    expected = regard.attend(*turned, value).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(module(x), module.output_projection(expected))
    reading, look = module.read(x)
    torch.testing.assert_close(reading, module(x))
    assert look.weights().shape == (2, 2, 5, 5)


def test_steps_that_are_remembered_keep_their_places():
    module, x = attention(), random_tensor(2, 6, 8)
    full_output = module(x, mask=regard.masks.causal(align="start"))
    memory = module.remember(x[:, :2])
    torch.testing.assert_close(
        module(x[:, :2], memory=memory, mask=regard.masks.causal(align="start")), full_output[:, :2]
    )
    for t in range(2, 6):
        module.remember(x[:, t : t + 1], memory=memory)
        torch.testing.assert_close(module(x[:, t : t + 1], memory=memory)[:, 0], full_output[:, t])
    torch.testing.assert_close(module(x[:, :1], memory=memory, start=0), module(x)[:, :1])


def test_packed_sentences_need_no_places_of_their_own():
    module, x = attention(), random_tensor(7, 8)
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    packed = module(x, mask=regard.masks.documents(ids))
    torch.testing.assert_close(packed, torch.cat([module(x[:3]), module(x[3:])]))
