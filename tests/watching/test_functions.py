"""Fused attention, flex_attention, our own attentions and declared ones."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.watching.cases import CLOSE, Fused, by_hand, masked, operators
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex

import regard
from regard.attention.scores import Additive

ORIGINAL = F.scaled_dot_product_attention
OPEN = torch.rand(2, 1, 5, 6, generator=torch.Generator().manual_seed(5)) > 0.3
OPEN[..., 0] = True
SLOPE = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(6))
LOWEST = torch.finfo(torch.float32).min


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8)


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({}, torch.zeros(())),
        ({"scale": 0.3}, torch.zeros(())),
        ({"attn_mask": OPEN}, masked(OPEN)),
        ({"attn_mask": masked(OPEN)}, masked(OPEN)),
        ({"attn_mask": torch.where(OPEN, 0.0, LOWEST)}, masked(OPEN)),
        ({"attn_mask": SLOPE}, SLOPE),
        ({"is_causal": True}, masked(torch.ones(5, 6).tril().bool())),
    ],
    ids=["plain", "scale", "boolean", "infinite", "lowest", "slope", "causal"],
)
def test_fused_attention_runs_as_it_does_unwatched(pair, options, added):
    query, key = pair
    model = Fused()
    plain, operators_before = operators(lambda: model(query, key, **options))
    with regard.watch(model) as attentions:
        watched, during = operators(lambda: model(query, key, **options))
    assert during == operators_before
    assert any("scaled_dot_product" in name for name in operators_before)
    assert torch.equal(watched, plain)
    expected = by_hand(query, key, added, options.get("scale"))
    (name,) = attentions  # 5 queries and 6 keys are of two sequences, but for the causal ones
    torch.testing.assert_close(attentions[name].weights(), expected, **CLOSE)
    assert (name, attentions.kind(name)) == (
        ("self", "causal") if "is_causal" in options else ("cross",) * 2
    )


def test_grouped_heads_are_seen_as_heads(pair):
    query, key = pair
    model = Fused()
    with regard.watch(model) as attentions:
        model(query, key[:, :2], enable_gqa=True)
    torch.testing.assert_close(attentions["cross"].weights(), by_hand(query, key[:, :2]), **CLOSE)
    assert attentions.parts("cross").key.shape[1] == 2


@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("padded", [False, True])
def test_grouped_heads_of_our_own_are_heads(score, padded):
    torch.manual_seed(0)
    attention = regard.MultiHeadAttention(8, 6, d_head=4, key_heads=2, score=score)
    model, x = torch.nn.Sequential(attention), torch.randn(3, 5, 8)
    mask = regard.masks.padding([5, 2, 4]) if padded else None
    _, expected = attention.read(x, mask=mask)
    with regard.watch(model) as attentions:
        attention(x, mask=mask)
    (name,) = attentions
    assert attentions[name].shape == (3, 6, 5, 5)
    torch.testing.assert_close(attentions[name].weights(), expected.weights(), **CLOSE)
    assert [head.head for head in attentions.table()] == list(range(6))
    assert attentions.parts(name).key.shape == (3, 2, 5, 4)
    if not padded:
        with regard.watch(model, heads=[4, 1]) as selected:
            attention(x)
        torch.testing.assert_close(selected[name].weights(), expected.weights()[:, [4, 1]], **CLOSE)


def test_a_row_shut_by_lowest_numbers_is_read_evenly_as_the_model_does(pair):
    query, key = pair
    closed = torch.zeros(5, 6)
    closed[2] = LOWEST
    model = Fused()
    with regard.watch(model) as attentions:
        model(query, key, attn_mask=closed)
    torch.testing.assert_close(attentions["cross"].weights()[:, :, 2], torch.full((2, 4, 6), 1 / 6))


def test_a_function_held_by_another_name_is_heard_where_modules_and_parts_hold_it(pair):
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.function = ORIGINAL

        def forward(self, query, key):
            return self.function(query, key, key) + ORIGINAL(query, key, key)

    model = Holding()
    with regard.watch(model) as attentions:
        model(*pair)
    assert len(attentions) == 2
    assert model.function is ORIGINAL is F.scaled_dot_product_attention


def test_flex_attention_with_a_score_and_a_mask_of_positions(pair):
    query, key = pair
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])

    def score(score, entry, head, row, column):
        return score + slopes[head] * (column - row) + 0.5 * entry

    def mask(entry, head, row, column):
        return (row >= column) | (head == 3)

    class Flex(torch.nn.Module):
        def forward(self, query, key, **how):
            return flex.flex_attention(query, key, key.clone(), **how)

    rows, columns = torch.arange(5)[:, None], torch.arange(6)
    heads = torch.arange(4)[:, None, None]
    added = slopes[:, None, None] * (columns - rows) + masked((rows >= columns) | (heads == 3))
    block = flex.create_block_mask(mask, 2, 4, 5, 6, device="cpu")
    model = Flex()
    plain = model(query, key, score_mod=score, block_mask=block, scale=0.4)
    with regard.watch(model) as attentions:
        watched = model(query, key, score_mod=score, block_mask=block, scale=0.4)
    assert torch.equal(watched, plain)
    expected = by_hand(query, key, added, 0.4)
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)
    torch.testing.assert_close(expected @ key, plain, atol=1e-5, rtol=1e-5)
    with regard.watch(model, heads=[3, 1], rows=slice(1, 4)) as attentions:
        model(query, key[:, :2], score_mod=score, block_mask=block, scale=0.4, enable_gqa=True)
    expected_weights = by_hand(query, key[:, :2], added, 0.4)[:, [3, 1], 1:4]
    torch.testing.assert_close(attentions["self"].weights(), expected_weights, **CLOSE)


@pytest.mark.parametrize("score", [None, "additive"])
def test_our_own_attention_is_seen_with_any_score(score):
    torch.manual_seed(1)
    additive_score = None if score is None else Additive(4, 4, 6, heads=2)
    model = regard.MultiHeadAttention(8, heads=2, score=additive_score)
    x = torch.randn(3, 5, 8)
    mask = regard.masks.causal(align="start")
    expected = model.read(x, mask=mask)[1].weights().detach()
    with regard.watch(model) as attentions:
        model(x, mask=mask)
    torch.testing.assert_close(attentions["self"].weights().detach(), expected, **CLOSE)
    assert attentions.kind("self") == "causal"
    with regard.watch(model, heads=[1]) as attentions:
        model(x, mask=mask)
    torch.testing.assert_close(attentions["self"].weights().detach(), expected[:, 1:], **CLOSE)


class ByHand(torch.nn.Module):
    """Attention as people write it, with and without the one line that tells of it."""

    def __init__(self, is_declared: bool) -> None:
        super().__init__()
        self.tells = is_declared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tells:
            regard.declare(x, x, mask=regard.masks.causal(align="start"))
        scores = x @ x.mT * x.shape[-1] ** -0.5
        closed = torch.ones(x.shape[-2], x.shape[-2]).triu(1).bool()
        return torch.softmax(scores.masked_fill(closed, -torch.inf), -1) @ x


def test_an_attention_by_hand_is_seen_where_it_is_declared():
    x = torch.randn(2, 3, 6, 4)
    model = ByHand(True)
    with regard.watch(model) as attentions:
        output = model(x)
    torch.testing.assert_close(attentions["self"].weights() @ x, output, **CLOSE)
    assert torch.equal(ByHand(True)(x), output)  # and says nothing where nobody watches


def test_gradients_of_looks_reach_the_model_where_they_are_asked_for():
    torch.manual_seed(2)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)
    with regard.watch(model, gradients=True) as attentions:
        model(x, x, x, need_weights=False)
    attentions["self"].entropy().mean().backward()
    assert model.in_proj_weight.grad[:16].abs().sum() > 0
    assert model.in_proj_weight.grad[16:].abs().sum() == 0  # values have no part in it
    with regard.watch(model) as attentions:
        model(x, x, x, need_weights=False)
    assert not attentions["self"].entropy().requires_grad


def test_what_is_out_of_reach_is_named():
    hidden_function = functools.partial(
        ORIGINAL
    )  # a name that no module and no part of the model holds

    class LinearAttention(torch.nn.Module):
        def forward(self, x):
            return hidden_function(x, x, x)

    model = torch.nn.Sequential(LinearAttention(), Fusing())
    with (
        pytest.warns(RuntimeWarning, match=r"0: computes attention in its own code"),
        regard.watch(model) as attentions,
    ):
        model(torch.randn(1, 2, 5, 4))
    assert list(attentions) == ["layer.1.self"]
    assert "declare" in attentions.unseen["0"]
    with pytest.raises(regard.WatchError, match="was not seen"):
        attentions["0"]


class Fusing(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)
