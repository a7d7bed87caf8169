"""A small language model whose tokens are bytes, in the alphabet of byte-level tokenizers."""

from __future__ import annotations

import pytest
import torch

from regard.explorer.prompting import LanguageModel
from regard.watching.spelling import ALPHABET

SIGNS = {byte: sign for sign, byte in ALPHABET.items()}


class Bytes:
    """A tokenizer with a token for each byte, and a template for chats."""

    chat_template = "yes"

    def encode(self, text, add_special_tokens=True):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode("utf-8", "replace")

    def convert_ids_to_tokens(self, ids):
        return [SIGNS[number] for number in ids]

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return f"<user>{messages[0]['content']}<answer>"


def language(name: str = "tiny", seed: int = 0) -> LanguageModel:
    """Two layers of four heads, with grouped keys."""
    # Transformers refuses the lowest safetensors that Regard allows, with an ImportError.
    transformers = pytest.importorskip(
        "transformers",
        reason="no transformers that these versions can import",
        exc_type=ImportError,
    )
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,  # so that heads differ
        vocab_size=256,
        max_position_embeddings=4096,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    return LanguageModel(name, model, Bytes(), list(b"Mary saw"))
