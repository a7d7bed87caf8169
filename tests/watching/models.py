"""Small random models of Hugging Face."""

from __future__ import annotations

import pytest
import torch

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def transformers():
    """The package; transformers refuses the lowest safetensors that Regard allows, with an ImportError."""
    return pytest.importorskip(
        "transformers",
        reason="no transformers that these versions can import",
        exc_type=ImportError,
    )


def model(family, kind, seed=1, **options):
    """Such as LlamaForCausalLM: two layers of four heads, unless the options of its configuration say more."""
    package = transformers()
    torch.manual_seed(seed)
    config = getattr(package, f"{family}Config")(**{**SIZES, **options})
    return getattr(package, family + kind)(config).eval()


def bert(implementation=None):
    return model("Bert", "Model", attn_implementation=implementation)


def gpt2():
    """Three heads, and 20 tokens."""
    sizes = {"vocab_size": 20, "hidden_size": 24, "num_attention_heads": 3, "n_positions": 32}
    return model("GPT2", "LMHeadModel", **sizes)


def llama(implementation=None, **options):
    """With grouped keys."""
    grouped = {"num_key_value_heads": 2, "eos_token_id": None}
    return model("Llama", "ForCausalLM", attn_implementation=implementation, **grouped, **options)


def gemma(implementation=None):
    """With a soft cap, and a window in every other layer."""
    return model(
        "Gemma2",
        "ForCausalLM",
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        attn_logit_softcapping=1.0,
        query_pre_attn_scalar=4,
        eos_token_id=None,
        attn_implementation=implementation,
    )


def gpt_oss(implementation=None):
    """With a sink in each head."""
    sinks = model(
        "GptOss",
        "ForCausalLM",
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
        attn_implementation=implementation,
    )
    for layer in sinks.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, generator=torch.Generator().manual_seed(0))
    return sinks
