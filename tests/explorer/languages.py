"""A small language model whose tokens are bytes, in the alphabet of byte-level tokenizers."""

from __future__ import annotations

import torch
from tests.watching.models import llama, transformers

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


class EndedBytes(Bytes):
    """Bytes, and the token 1 at the end of a text, which a decoder may leave out."""

    def encode(self, text, add_special_tokens=True):
        return [*text.encode(), *[1] * add_special_tokens]

    def decode(self, ids, skip_special_tokens=False):
        return super().decode([each for each in ids if each > 1 or not skip_special_tokens])


def encoder_decoder(family: str) -> LanguageModel:
    """A T5, BART or Marian of two layers of four heads on each side; 0 begins a target and 1 ends it."""
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    if family == "T5":
        sizes = {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "initializer_factor": 4.0}
    else:
        layers = {f"{side}_layers": 2 for side in ("encoder", "decoder")}
        heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
        widths = {f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")}
        sizes = {**layers, **heads, **widths, "init_std": 0.5, "forced_eos_token_id": 1}
    package = transformers()
    config = getattr(package, f"{family}Config")(d_model=32, vocab_size=256, **ends, **sizes)
    torch.manual_seed(0)
    names = {"Marian": "MarianMTModel"}
    build = getattr(package, names.get(family, f"{family}ForConditionalGeneration"))
    return LanguageModel(family, build(config).eval(), EndedBytes(), [*b"Mary saw", 1])


def language(name: str = "tiny", seed: int = 0) -> LanguageModel:
    """Two layers of four heads, with grouped keys."""
    model = llama(
        seed=seed,
        vocab_size=256,
        initializer_range=0.5,  # so that heads differ
        max_position_embeddings=4096,
    )
    return LanguageModel(name, model, Bytes(), list(b"Mary saw"))
