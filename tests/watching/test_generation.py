"""One-token calls as one look, whatever the cache does with its keys."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.explorer.bundles import Bundle
from tests.watching.cases import CLOSE, Fused

import regard
from regard.normalisers import Normaliser

BATCH, HEADS, WIDTH, PROMPT, TOKENS = 3, 2, 4, 5, 6
SHAPE = (BATCH, HEADS, PROMPT + TOKENS, WIDTH)


@pytest.fixture
def queries() -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def keys() -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))


def full_weights(queries, keys, mask):
    return regard.look(queries, keys, mask=mask).weights()[:, :, PROMPT:]


def steps():
    return range(PROMPT, PROMPT + TOKENS)


def test_a_cache_that_grows(queries, keys):
    model = Fused()
    with regard.watch(model) as attentions:
        model(queries[:, :, :PROMPT], keys[:, :, :PROMPT], is_causal=True)
        for at in steps():
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1].clone())
    expected = full_weights(queries, keys, regard.masks.causal(align="start"))
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)
    assert [step.of for step in attentions.steps("self")] == ["call", "tokens"]


def test_a_cache_that_grows_from_nothing(queries, keys):
    model = Fused()
    with regard.watch(model) as attentions:
        for at in range(6):
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1].clone())
    expected = regard.look(
        queries[:, :, :6], keys[:, :, :6], mask=regard.masks.causal(align="start")
    )
    torch.testing.assert_close(attentions["self"].weights(), expected.weights(), **CLOSE)


@dataclass(frozen=True)
class Sharpened(Normaliser):
    """Softmax of scores times a power for each head, of tensors alone and in a list."""

    powers: list[torch.Tensor]

    def rows(self, scores):
        return torch.softmax(scores * self.powers[0], -1)


class Attending(torch.nn.Module):
    """`regard.attend` with a normaliser that is built anew at every step."""

    def forward(self, query, key, power):
        return regard.attend(query, key, key, normaliser=Sharpened([power.clone()]))


@pytest.mark.parametrize("second_normaliser", [1.0, 2.0])
def test_normalisers_with_tensors_are_compared_by_their_numbers(queries, keys, second_normaliser):
    powers = torch.ones(HEADS, 1, 1)
    model = Attending()
    with regard.watch(model) as attentions:
        for at in range(6):
            power = powers if at < 3 else powers * second_normaliser
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1].clone(), power)
    assert not attentions.unseen
    assert [each.shape[-2] for each in attentions.steps("self")] == (
        [6] if second_normaliser == 1 else [3, 3]
    )


def test_a_cache_that_moves_along_as_a_window(queries, keys):
    model = Fused()
    with regard.watch(model) as attentions:
        model(queries[:, :, :PROMPT], keys[:, :, :PROMPT], is_causal=True)
        for at in steps():
            model(queries[:, :, at : at + 1], keys[:, :, at - 3 : at + 1].clone())
    expected = full_weights(queries, keys, regard.masks.band(3, 0))
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)


def test_a_cache_that_is_filled_in_place(queries, keys):
    model, cache = Fused(), torch.zeros_like(keys)
    cache[:, :, :PROMPT] = keys[:, :, :PROMPT]
    with regard.watch(model) as attentions:
        for at in steps():
            cache[:, :, at] = keys[:, :, at]
            open_ = (torch.arange(PROMPT + TOKENS) <= at).view(1, 1, 1, -1)
            model(queries[:, :, at : at + 1], cache, attn_mask=open_)
    expected = full_weights(queries, keys, regard.masks.causal(align="start"))
    torch.testing.assert_close(attentions["self"].weights(), expected, **CLOSE)


def test_a_cache_that_is_written_over_is_refused(queries, keys):
    model, cache = Fused(), keys[:, :, :4].clone()
    with regard.watch(model) as attentions:
        for at in range(4, 8):
            model(queries[:, :, at : at + 1], cache)
            cache[:] = keys[:, :, at - 3 : at + 1]
    with pytest.raises(regard.WatchError, match="group=False"):
        attentions["self"]


def test_a_beam_search_that_reorders_its_cache(queries, keys):
    model, order = Fused(), torch.Generator().manual_seed(2)
    cache, past_queries = keys[:, :, :PROMPT].clone(), queries[:, :, :0]
    with regard.watch(model) as attentions:
        for at in steps():
            parents = torch.randint(BATCH, (BATCH,), generator=order)
            cache, past_queries = cache[parents], past_queries[parents]
            query = queries[:, :, at : at + 1]
            cache = torch.cat([cache, keys[:, :, at : at + 1]], -2)
            past_queries = torch.cat([past_queries, query], -2)
            model(query, cache)
    expected = regard.look(past_queries, cache, mask=regard.masks.causal(align="end"))
    torch.testing.assert_close(attentions["self"].weights(), expected.weights(), **CLOSE)


def test_a_source_that_is_read_at_every_step_with_padding(queries, keys):
    model, source = Fused(), keys[:, :, :7].clone()
    open_ = regard.masks.padding([7, 4, 5]).dense((BATCH, 1), 1, 7)
    with regard.watch(model) as attentions:
        for at in steps():
            model(queries[:, :, at : at + 1], source, attn_mask=open_)
    expected = regard.look(queries[:, :, PROMPT:], source, mask=open_)
    torch.testing.assert_close(attentions["cross"].weights(), expected.weights(), **CLOSE)


def test_single_queries_of_unrelated_sequences_stay_apart(queries, keys):
    model = Fused()
    with regard.watch(model) as attentions:
        model(queries[:, :, :1], keys[:, :, :4])
        model(queries[:, :, 1:2], keys[:, :, 3:8])  # one key more, but none of the same
        model(queries[:, :, 2:3], keys[:, :, 2:7])  # as many, but others
    assert [step.of for step in attentions.steps("self")] == ["call"] * 3
    expected = regard.look(queries[:, :, 1:2], keys[:, :, 3:8]).weights()
    torch.testing.assert_close(attentions["self", 1].weights(), expected, **CLOSE)


def test_steps_stay_single_where_that_is_asked_for(queries, keys):
    model = Fused()
    with regard.watch(model, group=False) as attentions:
        for at in steps():
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1])
    assert len(attentions.steps("self")) == TOKENS


def test_a_sample_of_generated_tokens(queries, keys):
    model = Fused()
    with regard.watch(model, heads=[1], rows=slice(2, None), dtype=torch.float16) as attentions:
        for at in steps():
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1].clone())
    expected = full_weights(queries, keys, regard.masks.causal(align="start"))[:, 1:, 2:]
    torch.testing.assert_close(attentions["self"].weights(), expected, atol=3e-3, rtol=0)


def test_our_own_decoder_is_followed_step_by_step():
    from regard.translation.models.transformer.model import Transformer
    from regard.translation.settings.transformer import TransformerSettings

    torch.manual_seed(3)
    settings = TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=32, dropout=0.0
    )
    model = Transformer(settings, 20, 20).eval()
    source, lengths = torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])
    target = torch.randint(4, 20, (2, 4))
    with torch.no_grad(), regard.watch(model) as attentions:
        state = model.begin(source, lengths)
        for words in target.T:
            _, state = model.step(words, state)
    expected = model.looks(source, lengths, target)
    for name in ("decoder.0.self", "decoder.1.self", "decoder.0.cross", "decoder.1.cross"):
        weights = expected[name].weights().detach()
        torch.testing.assert_close(attentions[name].weights(), weights, **CLOSE)


LONG = 4  # keys of a static cache that no query reads


def static(queries, keys, **how):
    """A watched generation with a cache that is longer than what is written to it."""
    model = Fused()
    cache = torch.zeros(BATCH, HEADS, PROMPT + TOKENS + LONG, WIDTH)

    def read(rows):
        cache[:, :, rows] = keys[:, :, rows]
        at = torch.arange(PROMPT + TOKENS)[rows, None]
        open_ = torch.arange(cache.shape[-2]) <= at
        model(queries[:, :, rows], cache, attn_mask=open_[None, None])

    with regard.watch(model, **how) as attentions:
        read(slice(0, PROMPT))
        for at in steps():
            read(slice(at, at + 1))
    return attentions


def test_queries_of_a_longer_static_cache_stand_at_the_last_key_they_read(queries, keys):
    attentions = static(queries, keys, copy=True)
    assert attentions["self", 0].caption.places.tolist() == list(range(PROMPT))
    attentions = static(queries, keys)
    assert attentions["self"].caption.places.tolist() == list(steps())
    weights, at = attentions["self"].weights(), torch.tensor(steps())
    own_weights = weights[..., torch.arange(TOKENS), at]
    assert attentions.table().heads[1].diagonal == pytest.approx(
        float(own_weights[:, 1].mean()), abs=1e-5
    )
    attentions = static(queries, keys, group=False)
    assert attentions["self"].caption.places.tolist() == [PROMPT + TOKENS - 1]


def test_chosen_rows_of_a_static_cache_keep_their_places(queries, keys):
    attentions = static(queries, keys, rows=[1, 3], copy=True)
    assert attentions["self", 0].caption.places.tolist() == [1, 3]
    assert attentions["self"].caption.places.tolist() == [PROMPT + 1, PROMPT + 3]


def test_chosen_rows_of_generated_tokens_stand_where_they_stood(queries, keys, tmp_path):
    model = Fused()
    with regard.watch(model, rows=[0, 2, 5]) as attentions:
        for at in steps():
            model(queries[:, :, at : at + 1], keys[:, :, : at + 1].clone())
    places = [PROMPT, PROMPT + 2, PROMPT + 5]
    look = attentions["self"]
    assert look.caption.places.tolist() == places
    own_weights = look.weights()[..., torch.arange(3), torch.tensor(places)]
    assert attentions.table().heads[0].diagonal == pytest.approx(
        float(own_weights[:, 0].mean()), abs=1e-5
    )
    away = (torch.arange(PROMPT + TOKENS) - torch.tensor(places)[:, None]).abs()
    distance = (look.weights()[:, 0] * away).sum(-1).mean()
    assert attentions.table().heads[0].distance == pytest.approx(float(distance), abs=1e-5)
    page = Bundle.of_page(attentions.page(tmp_path / "x.html"))
    assert page.labels("self")[0] == ["5", "7", "10"]
    measures = page.attention("self")["measures"]
    assert measures["diagonal"][0] == pytest.approx(float(own_weights[0, 0].mean()), abs=1e-5)
    figure = look.plot(entry=0)
    axis = figure.axes[0].yaxis
    assert [axis.get_major_formatter()(tick) for tick in range(3)] == ["5", "7", "10"]


def test_chosen_rows_of_a_call_that_follows_a_cache_stand_after_it(queries, keys):
    model, mask = Fused(), regard.masks.causal(align="end").dense((), 4, 9, torch.device("cpu"))
    with regard.watch(model, rows=[1, 3]) as attentions:
        model(queries[:, :, :4], keys[:, :, :9], attn_mask=mask)
    assert attentions["self"].caption.places.tolist() == [6, 8]
