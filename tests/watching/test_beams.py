"""A beam search reorders the batch entries: cross attentions, tokens and pages follow each entry's ancestors."""

from __future__ import annotations

import weakref

import pytest
import torch
from tests.explorer.bundles import Bundle
from tests.watching.cases import CLOSE, Fused, by_hand
from torch import nn

import regard
from regard.watching.table import tokens_read

pytestmark = pytest.mark.usefixtures("one_interception")

HEADS, WIDTH, SOURCE, BEAMS = 2, 4, 5, 3
STEPS = 6


class Decoder(nn.Module):
    """One layer, whose keys depend on the word alone and whose cross-attention depends on all words."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.encoder_attn = Fused(), Fused()
        generator = torch.Generator().manual_seed(0)
        self.words = torch.randn(3, HEADS, 1, WIDTH, generator=generator)

    def forward(self, words, cache, source):
        state = self.words[words]
        cache = torch.cat([cache, state], -2)
        state = state + self.self_attn(state, cache)
        self.encoder_attn(state, source)
        return cache


def forced(model, words, source):
    """The weights of the cross-attention, (batch, heads, steps, keys), with these words, (batch, steps)."""
    keys = model.words[words].squeeze(-2).transpose(1, 2)
    hidden = (
        torch.ones(words.shape[1], words.shape[1])
        .triu(1)
        .masked_fill(torch.ones(words.shape[1], words.shape[1]).triu(1).bool(), -torch.inf)
    )
    return by_hand(keys + by_hand(keys, keys, hidden) @ keys, source)


def searched(model, source, seed=1, reorder=None, **how):
    """A watched search with random words and random ancestors within each group of beams, and its words."""
    draw = torch.Generator().manual_seed(seed)
    entries = len(source)
    cache, words = source.new_empty(entries, HEADS, 0, WIDTH), torch.empty(entries, 0).long()
    groups = torch.arange(entries) // BEAMS * BEAMS
    with torch.no_grad(), regard.watch(model, **how) as attentions:
        for _ in range(STEPS):
            order = groups + torch.randint(BEAMS, (entries,), generator=draw)
            cache, words = cache[order], words[order]
            newest = torch.randint(3, (entries,), generator=draw)
            words = torch.cat([words, newest[:, None]], -1)
            cache = model(newest, cache, source)
    return attentions, words


@pytest.fixture
def source() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, HEADS, SOURCE, WIDTH, generator=generator).repeat_interleave(BEAMS, 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("layers", [None, "encoder_attn"])
def test_cross_attention_follows_the_ancestors_of_each_entry(source, seed, layers):
    model = Decoder()
    attentions, words = searched(model, source, seed, layers=layers)
    expected = forced(model, words, source)
    torch.testing.assert_close(attentions["encoder_attn.cross"].weights(), expected, **CLOSE)
    assert ("self_attn.self" in attentions) == (layers is None)
    rows = searched(model, source, seed, rows=[1, 4])[0]
    torch.testing.assert_close(
        rows["encoder_attn.cross"].weights(), expected[:, :, [1, 4]], **CLOSE
    )


class Deep(nn.Module):
    """Four layers. The caches of the upper ones depend on all words of an entry."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Decoder() for _ in range(4))
        self.caches: list[list[weakref.ref[torch.Tensor]]] = []

    def forward(self, words, caches, source):
        state, grown = torch.cat([self.layers[0].words[each] for each in words], -2), []
        for layer, cache in zip(self.layers, caches, strict=True):
            grown.append(torch.cat([cache, state], -2))
            state = state + layer.self_attn(state, grown[-1])
            state = state + layer.encoder_attn(state, source + 0)
        self.caches.append([weakref.ref(each) for each in grown])
        return grown


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layers", ["*.0.encoder_attn", "*.3.encoder_attn", "*.encoder_attn"])
def test_the_first_and_last_of_excluded_attentions_are_followed(source, seed, layers):
    """In two searches, each of which begins with a prompt of two words."""
    groups = torch.arange(len(source)) // BEAMS * BEAMS
    attentions = {}
    for selection in (None, layers):
        model, draw = Deep(), torch.Generator().manual_seed(seed)
        with torch.no_grad(), regard.watch(model, layers=selection) as attentions[selection]:
            for count in [2, *[1] * STEPS] * 2:
                if count > 1:
                    caches = [source.new_empty(len(source), HEADS, 0, WIDTH)] * 4
                    model.caches.clear()
                order = groups + torch.randint(BEAMS, (len(source),), generator=draw)
                words = torch.randint(3, (count, len(source)), generator=draw)
                caches = model(words, [cache[order] for cache in caches], source)
            del caches
            alive = [[each() is not None for each in step] for step in model.caches]
        assert not attentions[selection].unseen
    assert attentions[layers]
    for name in attentions[layers]:
        steps = attentions[layers].steps(name)
        assert [step.shape[-2] for step in steps] == [2, STEPS] * 2
        for step in steps:
            looks = [each[name, step.number] for each in attentions.values()]
            torch.testing.assert_close(looks[1].weights(), looks[0].weights(), **CLOSE)
    # The first and last cache of two excluded attentions are kept, none of the others.
    ends = [True, False, False, True]
    assert alive == [[False] * 4, ends, *[[False] * 4] * (STEPS - 2), ends]


def test_a_budget_counts_the_cache_that_is_followed(source):
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="not everything"):
        attentions, _ = searched(
            Decoder(), source, layers="encoder_attn", memory=source.nbytes + 900
        )
    assert "was used up" in attentions.unseen["encoder_attn"]


def test_a_second_search_of_the_same_source_is_another_look(source):
    model = Decoder()
    with torch.no_grad(), regard.watch(model) as attentions:
        for words in ([0, 1, 2, 0, 1, 2], [2, 2, 0, 1, 0, 1]):
            cache = source.new_empty(len(source), HEADS, 0, WIDTH)
            for word in words:
                cache = model(torch.full((len(source),), word), cache, source)
    assert [step.shape[-2] for step in attentions.steps("encoder_attn.cross")] == [STEPS, STEPS]


def test_an_order_that_no_cache_shows_leaves_single_steps(source):
    """A window that a beam search reorders drops the keys that would show it."""
    model, draw = Decoder(), torch.Generator().manual_seed(2)
    cache = torch.randn(len(source), HEADS, 3, WIDTH, generator=draw)
    with torch.no_grad(), regard.watch(model) as attentions:
        for _ in range(3):
            order = torch.randperm(len(source), generator=draw)
            words = torch.randint(3, (len(source),), generator=draw)
            cache = model(words, cache[order][..., 1:, :], source)
    for name in ("self_attn", "encoder_attn"):
        assert [step.of for step in attentions.steps(name)] == ["call"] * 3, name


def test_a_cache_that_is_reordered_in_place_is_refused_for_cross_attention_too(source):
    model, draw = nn.ModuleDict({"own": Fused(), "cross_attn": Fused()}), torch.Generator()
    cache = torch.zeros(len(source), HEADS, STEPS, WIDTH)
    query = torch.randn(STEPS, len(source), HEADS, 1, WIDTH, generator=draw.manual_seed(4))

    def run():
        for at in range(STEPS):
            cache[:, :, at] = query[at, :, :, 0]
            readable = (torch.arange(STEPS) <= at).view(1, 1, 1, -1)
            model["own"](query[at], cache, attn_mask=readable)
            model["cross_attn"](query[at], source)
            cache[:] = cache.flip(0)

    model.forward = run
    with torch.no_grad(), regard.watch(model) as attentions:
        model()
    for name in ("own.self", "cross_attn.cross"):
        with pytest.raises(regard.WatchError, match="group=False"):
            attentions[name]


def built_model(kind: str, layers: int) -> nn.Module:
    """A random encoder-decoder of Hugging Face."""
    hub = pytest.importorskip("transformers")
    torch.manual_seed(layers)
    sizes = {"vocab_size": 40, "d_model": 16, "pad_token_id": 1, "eos_token_id": 2}
    sizes |= {"decoder_start_token_id": 3}
    common_options = {"layers": layers, "attention_heads": 2, "ffn_dim": 32}
    sides = {
        f"{side}_{name}": each
        for side in ("encoder", "decoder")
        for name, each in common_options.items()
    }
    other_options = {"init_std": 0.5, "forced_eos_token_id": None}
    if kind == "t5":
        size = {"d_kv": 8, "d_ff": 32, "num_layers": layers, "num_heads": 2}
        config = hub.T5Config(**sizes, **size, initializer_factor=3.0)
        return hub.T5ForConditionalGeneration(config)
    if kind == "bart":
        config = hub.BartConfig(**sizes, **sides, **other_options, max_position_embeddings=32)
        return hub.BartForConditionalGeneration(config)
    if kind == "marian":
        config = hub.MarianConfig(**sizes, **sides, **other_options, max_position_embeddings=32)
        return hub.MarianMTModel(config)
    lengths = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 32}
    silent = {"suppress_tokens": None, "begin_suppress_tokens": None, "bos_token_id": 4}
    config = hub.WhisperConfig(**sizes, **sides, **lengths, **silent, init_std=0.5)
    return hub.WhisperForConditionalGeneration(config)


def beams(model, inputs, monkeypatch, **how):
    """A watched beam search and the words of its last entries, by the order that the search itself uses."""
    from transformers.cache_utils import EncoderDecoderCache

    original, orders, steps = EncoderDecoderCache.reorder_cache, [], []

    def reorder(cache, order):
        orders.append(order.clone())
        return original(cache, order)

    monkeypatch.setattr(EncoderDecoderCache, "reorder_cache", reorder)
    hook = model.get_decoder().register_forward_pre_hook(
        lambda _, __, named: steps.append(named["input_ids"].clone()), with_kwargs=True
    )
    with torch.no_grad(), regard.watch(model, **how) as attentions:
        model.generate(**inputs, num_beams=BEAMS, max_new_tokens=7, length_penalty=5.0)
    hook.remove()
    row_numbers, words = torch.arange(len(steps[-1])), [steps[-1]]
    for step, order in zip(steps[-2::-1], orders[len(steps) - 2 :: -1], strict=True):
        row_numbers = order[row_numbers]
        words.append(step[row_numbers])
    assert any(bool((each != torch.arange(len(each))).any()) for each in orders)
    return attentions, torch.cat(words[::-1], -1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["t5", "bart", "marian", "whisper"])
def test_a_beam_search_attends_as_its_words_forced(kind, layers, monkeypatch, tmp_path):
    model = built_model(kind, layers).eval()
    if kind == "whisper":
        inputs = {"input_features": torch.randn(2, 8, 20)}
    else:
        inputs = {"input_ids": torch.randint(5, 40, (2, 6)), "attention_mask": torch.ones(2, 6)}
        inputs["attention_mask"] = inputs["attention_mask"].long()
        inputs["attention_mask"][1, 4:] = 0
    attentions, words = beams(model, inputs, monkeypatch)
    model.set_attn_implementation("eager")
    repeated = {name: each.repeat_interleave(BEAMS, 0) for name, each in inputs.items()}
    with torch.no_grad():
        expected = model(
            **repeated, decoder_input_ids=words, output_attentions=True, use_cache=False
        )
    close = {"atol": 2e-4, "rtol": 0.0}  # T5's scores are large, and its softmax sharp
    for layer in range(layers):
        cross, self_name = f"decoder.{layer}.cross", f"decoder.{layer}.self"
        torch.testing.assert_close(
            attentions[cross].weights(), expected.cross_attentions[layer], **close
        )
        torch.testing.assert_close(
            attentions[self_name].weights(), expected.decoder_attentions[layer], **close
        )
    read = tokens_read(attentions._subject("decoder.0.self"))
    assert torch.equal(read.keys, words)
    assert torch.equal(read.queries, words)
    if kind != "whisper":
        read = tokens_read(attentions._subject("decoder.0.cross"))
        assert torch.equal(read.queries, words)
        assert torch.equal(read.keys, repeated["input_ids"])
    page = attentions.page(
        tmp_path / "beams.html",
        names=["decoder.0.self"],
        tokenizer=lambda ids: [f"w{each}" for each in ids],
        entry=4,
    )
    assert Bundle.of_page(page).labels("decoder.0.self")[0] == [f"w{each}" for each in words[4]]
