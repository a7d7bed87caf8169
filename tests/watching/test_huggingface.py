"""Models of Hugging Face, built from configurations, beside the attentions that their eager form gives."""

from __future__ import annotations

import pytest
import torch
from tests.watching import models
from tests.watching.cases import CLOSE, by_hand
from tests.watching.models import SIZES, bert, gemma, gpt_oss, llama

import regard

transformers = models.transformers()

TOKENS = torch.randint(5, 50, (2, 9), generator=torch.Generator().manual_seed(0))
MASK = torch.ones(2, 9, dtype=torch.long)
MASK[1, 6:] = 0
LEFT = MASK.flip(-1)
T5_SIZES = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
}
TOLD = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}


def marian(implementation):
    sizes = {f"{side}_layers": 2 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return models.model(
        "Marian",
        "MTModel",
        **sizes,
        **ends,
        d_model=32,
        forced_eos_token_id=None,
        attn_implementation=implementation,
    )


def eager_weights(make, tokens, mask, **named):
    with torch.no_grad():
        return make("eager")(tokens, attention_mask=mask, output_attentions=True, **named)


def assert_rows(weights, expected, mask):
    """Of the queries that are not padding; those read what they like."""
    keep = mask[:, None, :, None].bool()
    torch.testing.assert_close(weights * keep, expected[..., : weights.shape[-1]] * keep, **CLOSE)


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("make", [bert, gemma])
def test_every_implementation_is_seen_and_computes_what_it_did(make, implementation):
    if make is gemma and implementation == "sdpa":
        pytest.skip("has no bound on scores")
    model = make(implementation)
    # What is compiled for flex attention is not what is tested here, and takes a minute.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        plain = model(TOKENS, attention_mask=MASK)[0]
        with regard.watch(model) as attentions:
            watched = model(TOKENS, attention_mask=MASK)[0]
    assert torch.equal(watched, plain)
    assert attentions.unseen == {}
    expected = eager_weights(make, TOKENS, MASK).attentions
    for (name, look), weights in zip(attentions.items(), expected, strict=True):
        assert_rows(look.weights(), weights, MASK)
        assert attentions.kind(name) == ("self" if make is bert else "causal")


@pytest.mark.parametrize(
    ("make", "implementation"), [(llama, "sdpa"), (llama, "eager"), (gemma, "eager")]
)
def test_generated_tokens_are_the_rows_of_one_look(make, implementation):
    model = make(implementation)
    plain = model.generate(TOKENS, attention_mask=LEFT, **TOLD)
    with regard.watch(model) as attentions:
        watched = model.generate(TOKENS, attention_mask=LEFT, **TOLD)
    assert torch.equal(watched, plain)
    mask = torch.cat([LEFT, LEFT.new_ones(2, 4)], 1)
    expected = eager_weights(make, plain[:, :-1], mask).attentions
    for layer, weights in enumerate(expected):
        name = f"layer.{layer}.self"
        assert [step.of for step in attentions.steps(name)] == ["call", "tokens"]
        assert_rows(attentions[name, 0].weights(), weights[:, :, :9], LEFT)
        assert attentions[name].shape == (2, 4, 4, 13)
        torch.testing.assert_close(attentions[name].weights(), weights[:, :, 9:], **CLOSE)
        assert attentions.kind(name) == "causal"


def test_a_beam_search_is_followed_back_to_what_each_beam_read():
    model = llama("sdpa")
    with regard.watch(model) as attentions:
        model.generate(TOKENS, attention_mask=LEFT, num_beams=3, **TOLD)
    grouped = {name: attentions[name].weights() for name in attentions}
    with regard.watch(model, group=False, copy=True) as steps:
        model.generate(TOKENS, attention_mask=LEFT, num_beams=3, **TOLD)
    for name, weights in grouped.items():
        assert weights.shape == (6, 4, 4, 13)
        for row in range(4):
            single = steps[name, row + 1].weights()[:, :, 0]
            entries = weights[:, :, row, : 10 + row]
            apart = (entries[:, None] - single[None]).abs().amax((-1, -2))
            assert (apart.amin(1) < 1e-5).all()
        torch.testing.assert_close(weights[:, :, 3], steps[name].weights()[:, :, 0], **CLOSE)


def test_a_cache_that_is_filled_in_place():
    model = llama("sdpa")
    with regard.watch(model) as attentions:
        model.generate(TOKENS, attention_mask=LEFT, **TOLD)
    with regard.watch(model) as static:
        model.generate(TOKENS, attention_mask=LEFT, cache_implementation="static", **TOLD)
    for name in attentions:
        weights = static[name].weights()
        torch.testing.assert_close(weights[..., :13], attentions[name].weights(), **CLOSE)
        assert not weights[..., 13:].any()
        with pytest.raises(regard.WatchError, match="copy=True"):
            static[name, 0].entropy()


def test_an_encoder_and_a_decoder_that_generates():
    model = marian("sdpa")
    generation_options = {"attention_mask": MASK, **TOLD}
    with regard.watch(model) as attentions:
        generated = model.generate(TOKENS, **generation_options)
    expected = eager_weights(marian, TOKENS, MASK, decoder_input_ids=generated[:, :-1])
    for layer in range(2):
        name = f"encoder.{layer}.self"
        assert_rows(attentions[name].weights(), expected.encoder_attentions[layer], MASK)
        for kind, weights in (
            ("cross", expected.cross_attentions),
            ("self", expected.decoder_attentions),
        ):
            look = attentions[f"decoder.{layer}.{kind}"]
            torch.testing.assert_close(look.weights(), weights[layer], **CLOSE)
    assert attentions.kind("decoder.0.cross") == "cross"
    assert attentions["decoder.1.cross"].top(5)[1].shape == (2, 4, 5, 5)


def test_relative_positions_are_biases():
    for implementation in ("eager", "sdpa"):
        model = models.model("T5", "EncoderModel", **T5_SIZES, attn_implementation=implementation)
        with torch.no_grad(), regard.watch(model) as attentions:
            model(TOKENS, attention_mask=MASK)
        weights = [attentions[name].weights() for name in attentions]
        if implementation == "eager":
            expected = weights
            kept_tensors = attentions.parts(next(iter(attentions)))
            torch.testing.assert_close(
                weights[0],
                by_hand(kept_tensors.query, kept_tensors.key, kept_tensors.bias, 1.0),
                **CLOSE,
            )
    for actual, exact in zip(weights, expected, strict=True):
        assert_rows(actual, exact, MASK)


def test_attentions_have_the_same_names_in_every_model_with_an_encoder_and_a_decoder():
    encoder, decoder = transformers.BertConfig(**SIZES), transformers.BertConfig(**SIZES)
    two = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    for model in (
        marian("sdpa"),
        models.model("T5", "ForConditionalGeneration", **T5_SIZES, decoder_start_token_id=0),
        transformers.EncoderDecoderModel(two).eval(),
    ):
        with torch.no_grad(), regard.watch(model) as attentions:
            model(input_ids=TOKENS, decoder_input_ids=TOKENS[:, :7])
        assert {name: attentions.kind(name) for name in attentions} == {
            "encoder.0.self": "self",
            "encoder.1.self": "self",
            "decoder.0.self": "causal",
            "decoder.0.cross": "cross",
            "decoder.1.self": "causal",
            "decoder.1.cross": "cross",
        }


def test_sinks_take_their_share():
    model = gpt_oss("eager")
    with torch.no_grad(), regard.watch(model, heads=[2, 0]) as attentions:
        expected = model(TOKENS, output_attentions=True).attentions
    for look, weights in zip(attentions.values(), expected, strict=True):
        torch.testing.assert_close(look.weights(), weights[:, [2, 0]], **CLOSE)
        assert (look.weights().sum(-1) < 0.999).all()


def test_a_kernel_that_does_not_say_what_it_reads_is_named():
    def opaque(module, query, key, value, mask, **how):
        return torch.zeros_like(query).transpose(1, 2), None

    transformers.AttentionInterface.register("opaque", opaque)
    model = llama("opaque")
    with pytest.warns(RuntimeWarning, match="'opaque'"), regard.watch(model) as attentions:
        model(TOKENS)
    with pytest.raises(regard.WatchError, match=r"seen no attention.*'opaque'"):
        list(attentions)


def test_a_model_with_weights_of_its_own_kind_is_refused(monkeypatch):
    from transformers.models.bert import modeling_bert

    plain = modeling_bert.eager_attention_forward

    def sharper(module, query, key, value, mask, scaling=None, **how):
        return plain(module, query, key, value, mask, scaling=2 * scaling, **how)

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", sharper)
    model = bert("eager")
    with torch.no_grad(), regard.watch(model) as attentions:
        model(TOKENS)
    with pytest.raises(regard.WatchError, match="computes its weights in an unknown way"):
        attentions["encoder.0.self"]
