"""Heads that write the tokens that they read, beside the logits of hooks."""

from __future__ import annotations

import pytest
import torch

import regard

transformers = pytest.importorskip("transformers")

TOKENS = torch.tensor([[3, 7, 3, 9, 12, 5], [8, 8, 1, 2, 14, 6]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "vocab_size": 20}


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SIZES, intermediate_size=16, num_key_value_heads=2, **options
    )
    model = transformers.LlamaForCausalLM(config).eval()
    torch.nn.init.normal_(model.model.norm.weight)
    return model


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=16, vocab_size=20, n_positions=8)
    model = transformers.GPT2LMHeadModel(config).eval()
    torch.nn.init.normal_(model.transformer.ln_f.weight)
    torch.nn.init.normal_(model.transformer.ln_f.bias)
    return model


@torch.no_grad()
def watched(model, **options):
    with regard.watch(model, values=True) as seen:
        model(TOKENS, **options)
    return seen


@pytest.mark.parametrize(("make", "centres"), [(llama, False), (gpt2, True)])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_the_share_is_that_of_the_logits_of_each_key(make, centres, mask):
    model = make()
    seen = watched(model, attention_mask=mask)
    norm = model.transformer.ln_f if centres else model.model.norm
    unembedding = model.lm_head.weight * norm.weight
    heads = iter(seen.table())
    for name in seen:
        readings = seen.readings(name)
        added = readings.call.values() @ readings.projection.weight
        added = added - added.mean(-1, keepdim=True) if centres else added
        logits = added @ unembedding.mT  # (entries, heads, keys, vocabulary)
        for head in range(4):
            shares = []
            for entry, tokens in enumerate(TOKENS):
                kept = tokens if mask is None else tokens[mask[entry].bool()]
                among = logits[entry, head][: len(kept), kept]
                best = kept[among.argmax(-1)]
                shares.append((best == kept).double().mean())
            assert next(heads).writes == pytest.approx(float(sum(shares) / 2))


def test_a_head_that_hands_its_token_on_copies_by_output():
    config = {
        **SIZES,
        "hidden_size": 20,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
    }
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**config, intermediate_size=16, head_dim=20)
    ).eval()
    attention = model.model.layers[0].self_attn
    model.model.embed_tokens.weight.data = torch.eye(20)
    model.lm_head.weight.data = torch.eye(20)
    attention.v_proj.weight.data = torch.eye(20)
    for sign, share in ((1.0, 1.0), (-1.0, 0.0)):
        attention.o_proj.weight.data = sign * torch.eye(20)
        (head,) = watched(model).table()
        assert head.writes == share
        assert ("copy by output" in head.role) == (share == 1.0)
    table = watched(model).table()
    assert "writes" in str(table)


def test_without_logits_of_tokens_nothing_is_written():
    model = llama()
    with torch.no_grad(), regard.watch(model) as plain:
        model(TOKENS)
    body = watched(model.model)
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(**SIZES, intermediate_size=16)
    ).eval()
    for seen in (plain, body, watched(bert)):
        table = seen.table()
        assert all(head.writes != head.writes for head in table)
        assert "writes" not in str(table)


class Scaled(torch.nn.Module):
    def forward(self, states):
        return states * torch.linspace(1, 2, 16)


def test_a_layer_between_norm_and_logits_makes_the_direction_unknown():
    model = llama()
    model.lm_head = torch.nn.Sequential(Scaled(), model.lm_head)
    assert all(head.writes != head.writes for head in watched(model).table())
