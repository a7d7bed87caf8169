"""Scores split by summands of the residual stream, beside the formulas of the models."""

from __future__ import annotations

import pytest
import torch
from tests.watching.models import gpt2, llama, model
from tests.watching.test_values import TOKENS

import regard
from regard.explorer.direct import direct
from regard.explorer.numbers import _pairs
from regard.explorer.split_scores import ScoreSplits

QUERY, KEY = 5, 2
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def splits(language_model):
    def run():
        return language_model(TOKENS[:1])

    with torch.no_grad(), regard.watch(language_model, values=True) as seen:
        run()
    split = direct(language_model, run, seen)
    assert not isinstance(split, str), split
    return ScoreSplits(language_model, run, split, {name: seen.path(name) for name in seen}), seen


def of_llama(block, stream, place, head, side):
    """What each summand adds to a query or key: norm with its deviation, projection, rotation."""
    attention, norm = block.self_attn, block.input_layernorm
    deviation = (stream.sum(0).square().mean() + norm.variance_epsilon).sqrt()
    projection = attention.q_proj if side == "query" else attention.k_proj
    vectors = (stream / deviation * norm.weight) @ projection.weight.T
    vectors = vectors.unflatten(-1, (-1, 8))[:, head if side == "query" else head // 2]
    angles = place * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
    halves = vectors[:, :4], vectors[:, 4:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin], -1)


@torch.no_grad()
def test_a_score_is_the_sum_over_pairs_that_the_formula_of_llama_gives():
    language_model = llama()
    scores, seen = splits(language_model)
    name, head = "layer.1.self", 3
    names, queries, keys = scores.of(name, head, QUERY, KEY)
    assert names == ["embedding", "layer.0.self", "layer.0.mlp", "biases"]
    block = language_model.model.layers[1]
    for side, place, vectors in (("query", QUERY, queries), ("key", KEY, keys)):
        stream = scores.direct.summands[:3, place]
        expected = of_llama(block, stream, place, head, side)
        torch.testing.assert_close(vectors[:-1], expected, **CLOSE)
        torch.testing.assert_close(vectors[-1], torch.zeros(8), **CLOSE)
    pairs = _pairs(regard.scores.ScaledDot(), names, names, queries, keys)
    call = seen.parts(name)
    score = call.query[0, head, QUERY] @ call.key[0, head // 2, KEY] / 8**0.5
    assert pairs["split"] == pytest.approx(float(score), abs=1e-5)
    assert sum(pair["score"] for pair in pairs["pairs"]) == pytest.approx(float(score), abs=1e-5)


@torch.no_grad()
def test_biases_of_norms_and_projections_are_one_summand():
    language_model = gpt2()
    block, head = language_model.transformer.h[1], 1
    for parameter in (block.ln_1.bias, block.attn.c_attn.bias):
        parameter.normal_()
    scores, _ = splits(language_model)
    _, queries, _ = scores.of("layer.1.self", head, QUERY, KEY)
    width = language_model.config.n_embd // language_model.config.n_head
    columns = slice(head * width, (head + 1) * width)
    weight, bias = block.attn.c_attn.weight[:, columns], block.attn.c_attn.bias[columns]
    torch.testing.assert_close(queries[-1], block.ln_1.bias @ weight + bias, **CLOSE)
    embedding = scores.direct.summands[0, QUERY]
    stream = scores.direct.summands[:3, QUERY].sum(0)
    deviation = (stream.var(unbiased=False) + block.ln_1.eps).sqrt()
    normed = (embedding - embedding.mean()) / deviation * block.ln_1.weight
    torch.testing.assert_close(queries[0], normed @ weight, **CLOSE)


@torch.no_grad()
def test_norms_of_queries_and_keys_have_their_deviation():
    qwen3 = model("Qwen3", "ForCausalLM", num_key_value_heads=2, head_dim=8)
    qwen3.model.layers[1].self_attn.q_norm.weight.uniform_(0.5, 2.0)
    scores, seen = splits(qwen3)
    _, queries, keys = scores.of("layer.1.self", 3, QUERY, KEY)
    call = seen.parts("layer.1.self")
    torch.testing.assert_close(queries.sum(0), call.query[0, 3, QUERY], **CLOSE)
    torch.testing.assert_close(keys.sum(0), call.key[0, 1, KEY], **CLOSE)
    torch.testing.assert_close(queries[-1], torch.zeros(8), **CLOSE)
