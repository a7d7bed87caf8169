"""Functions in transformers' AttentionInterface that are seen by their arguments, not by their names."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.watching import models
from tests.watching.cases import CLOSE, by_hand
from tests.watching.models import bert, gemma, gpt_oss, llama
from tests.watching.test_huggingface import LEFT, MASK, TOKENS, TOLD, assert_rows

import regard

transformers = models.transformers()
flash = pytest.importorskip("transformers.modeling_flash_attention_utils")
from transformers.integrations.flash_attention import flash_attention_forward  # noqa: E402
from transformers.masking_utils import flash_attention_mask  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_interception")

SUPPORTED = ("dropout_p", "window_size", "deterministic", "softcap", "s_aux")
OTHERS = (
    "learnable_sink",
    "block_table",
    "page_table",
    "max_seqlen_q",
    "max_seqlen_k",
    "cache_seqlens",
)


def plain(
    query, key, value, *, causal, softmax_scale, window_size=(-1, -1), softcap=None, s_aux=None, **_
):
    """Flash attention as its documentation has it, row by row: (entries, length, heads, width)."""
    dtype = query.dtype
    query, key, value = (plane.transpose(1, 2).double() for plane in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = (plane.repeat_interleave(group, 1) for plane in (key, value))
    readings = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float64)
    offset = key.shape[-2] - query.shape[-2]
    for row in range(query.shape[-2]):
        place = row + offset
        low = 0 if window_size[0] < 0 else max(0, place - window_size[0])
        high = key.shape[-2] if window_size[1] < 0 else place + window_size[1] + 1
        high = min(high, place + 1) if causal else high
        scores = query[:, :, row : row + 1] @ key[:, :, low:high].mT * softmax_scale
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        if s_aux is not None:
            scores = torch.cat(
                [scores, s_aux.double().view(1, -1, 1, 1).expand(len(scores), -1, 1, 1)], -1
            )
        weights = torch.softmax(scores, -1)[..., : max(0, high - low)]
        readings[:, :, row] = (weights @ value[:, :, low:high])[:, :, 0]
    return readings.transpose(1, 2).to(dtype)


def plain_texts(query, key, value, *, cu_seqlens_q, cu_seqlens_k, **options):
    """The same for texts packed into one row, (tokens, heads, width)."""
    bounds = zip(
        *(side.unfold(0, 2, 1).tolist() for side in (cu_seqlens_q, cu_seqlens_k)), strict=True
    )
    return torch.cat(
        [
            plain(
                query[None, q[0] : q[1]],
                key[None, k[0] : k[1]],
                value[None, k[0] : k[1]],
                **options,
            )[0]
            for q, k in bounds
        ]
    )


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """transformers' own flash attention, without the library that it calls."""
    arguments = partial(
        flash._process_flash_attention_kwargs,
        supports_mapping=dict.fromkeys(SUPPORTED, True) | dict.fromkeys(OTHERS, False),
    )
    functions = (plain, plain_texts, None, flash._pad_input, flash._unpad_input)
    monkeypatch.setattr(
        flash, "lazy_import_flash_attention", lambda _: (functions, (arguments, None))
    )
    mapping = transformers.AttentionInterface._global_mapping
    monkeypatch.setattr(transformers.AttentionInterface, "_global_mapping", dict(mapping))
    masks = transformers.AttentionMaskInterface
    monkeypatch.setattr(masks, "_global_mapping", dict(masks._global_mapping))
    register("plain", flash_attention_forward, flash_attention_mask)


def register(name, function, mask=None):
    transformers.AttentionInterface.register(name, function)
    if mask is not None:
        transformers.AttentionMaskInterface.register(name, mask)


def modern(implementation):
    """An encoder with a window to both sides."""
    return models.model(
        "ModernBert",
        "Model",
        pad_token_id=0,
        local_attention=4,
        global_attn_every_n_layers=2,
        attn_implementation=implementation,
    )


def weights_of(model, *arguments, **named):
    """The output, the same as without a watch, and the weights of each attention."""
    with torch.no_grad():
        unwatched = model(*arguments, **named)[0]
        with regard.watch(model) as seen:
            watched = model(*arguments, **named)[0]
    assert torch.equal(watched, unwatched)
    assert seen.unseen == {}
    return [seen[name].weights() for name in seen]


@pytest.mark.parametrize("mask", [None, MASK, LEFT], ids=["whole", "right", "left"])
@pytest.mark.parametrize("make", [bert, llama, gemma, modern, gpt_oss])
def test_flash_attention_is_seen_with_the_mask_that_it_implies(make, mask):
    weights = weights_of(make("plain"), TOKENS, attention_mask=mask)
    with torch.no_grad():
        expected = make("eager")(TOKENS, attention_mask=mask, output_attentions=True).attentions
    assert len(weights) == len(expected) == 2
    for look, eager in zip(weights, expected, strict=True):
        assert_rows(look, eager, torch.ones_like(MASK) if mask is None else mask)
        if mask is not None:  # padding reads nothing, as in the kernel
            assert not look[~mask.bool()[:, None].expand(-1, 4, -1)].any()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_tokens_that_flash_attention_generates_are_seen(cache):
    options = {**TOLD, "attention_mask": LEFT, "cache_implementation": cache}
    looks = []
    for implementation in ("plain", "sdpa"):
        model = llama(implementation)
        with regard.watch(model, copy=True) as seen:
            model.generate(TOKENS, **options)
        looks.append(seen)
    kernel, fused = looks
    assert kernel.unseen == {}
    for name in fused:
        torch.testing.assert_close(kernel[name].weights(), fused[name].weights(), **CLOSE)


def test_packed_texts_do_not_read_each_other():
    model, eager = llama("plain"), llama("eager")
    row, places = TOKENS[:1], torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    for options in (
        {},
        dict.fromkeys(
            ("cu_seq_lens_q", "cu_seq_lens_k"), torch.tensor([0, 4, 9], dtype=torch.int32)
        )
        | dict.fromkeys(("max_length_q", "max_length_k"), 5),
    ):
        weights = weights_of(model, row, position_ids=places, **options)
        with torch.no_grad():
            texts = [
                eager(text, output_attentions=True).attentions for text in (row[:, :4], row[:, 4:])
            ]
        for layer, look in enumerate(weights):
            expected = torch.zeros(1, 4, 9, 9)
            expected[..., :4, :4], expected[..., 4:, 4:] = (text[layer] for text in texts)
            torch.testing.assert_close(look, expected, **CLOSE)


def own(module, query, key, value, attention_mask, scaling=None, **options):
    """A function of one's own, which knows no window, cap or packed text."""
    added = torch.full((query.shape[-2], key.shape[-2]), -torch.inf).triu(
        1 + key.shape[-2] - query.shape[-2]
    )
    weights = by_hand(query, key, added, scaling)
    value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return (weights @ value).transpose(1, 2), None


def test_a_function_of_ones_own_is_seen_and_edited():
    register("own", own)
    model = llama("own")
    fused = llama("sdpa")
    for weights, expected in zip(weights_of(model, TOKENS), weights_of(fused, TOKENS), strict=True):
        torch.testing.assert_close(weights, expected, **CLOSE)
    edits = {"layer.0.self": regard.edits.Scale(0.0, heads=1), "layer.1.self": regard.edits.Mean()}
    outputs = []
    for each in (model, fused):
        with torch.no_grad(), regard.change(each, edits) as change:
            outputs.append(each(TOKENS)[0])
        assert "layer.0.self" in change
    torch.testing.assert_close(*outputs, **CLOSE)


def test_a_function_that_calls_a_known_one_is_seen_once():
    def through(module, *arguments, **options):
        known = transformers.AttentionInterface()["sdpa"]
        return known(module, *arguments, **options)

    register("through", through)
    model = llama("through")
    with torch.no_grad(), regard.watch(model) as seen:
        model(TOKENS)
    assert [len(seen.steps(name)) for name in seen] == [1, 1]


def _shifted(module, query, key, value, mask, **options):
    """Each query reads one key less."""
    result = own(module, query[:, :, :-1], key[:, :, :-1], value[:, :, :-1], None)[0]
    return torch.cat([torch.zeros_like(result[:, :1]), result], 1), None


def _flat(module, query, key, value, mask, **options):
    return own(module, query, key, value, mask)[0].flatten(2), None


@pytest.mark.parametrize(
    ("make", "function", "reason"),
    [
        (llama, _shifted, r"'odd' computes in an unknown way: .* of their norm; load the model"),
        (bert, own, r"'odd' computes in an unknown way"),  # the model is not causal
        (gemma, own, r"'odd' computes in an unknown way"),  # it has no window
        (llama, _flat, r"'odd' returns no readings \(batch, queries, heads, width\)"),
    ],
)
def test_what_does_not_agree_is_refused(make, function, reason):
    register("odd", function)
    model = make("odd")
    with torch.no_grad(), pytest.warns(RuntimeWarning, match=reason), regard.watch(model) as seen:
        model(TOKENS)
    assert len(seen.unseen) == (1 if make is gemma else 2)
    with pytest.raises(regard.WatchError, match=reason), regard.change(model, {"*": torch.relu}):
        model(TOKENS)


def test_dropout_is_refused():
    register("own", own)
    model = llama("own")
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    with pytest.warns(RuntimeWarning, match=r"'own' applies dropout, so .*model\.eval"):  # noqa: SIM117
        with regard.watch(model.train()):
            model(TOKENS)


def test_half_precision_is_compared_as_such():
    model, mask = llama("plain").bfloat16(), LEFT
    with torch.no_grad(), regard.watch(model) as seen:
        model(TOKENS, attention_mask=mask)
    assert seen.unseen == {}
