"""Weights of ours in Hugging Face's M2M100, the architecture there that normalises before each sublayer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import M2M100Config, M2M100ForConditionalGeneration

from regard.attention.positions import sinusoidal
from regard.translation.models.transformer.model import Transformer
from regard.translation.text.tokenizer import BOS, EOS, PAD

POSITIONS = 600


@torch.no_grad()
def m2m100(ours: Transformer) -> M2M100ForConditionalGeneration:
    """The same function: their table of positions and their biases are set to what ours has."""
    settings = ours.settings
    configuration = M2M100Config(
        vocab_size=ours.target_embedding.num_embeddings,
        d_model=settings.width,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        encoder_attention_heads=settings.heads,
        decoder_attention_heads=settings.heads,
        encoder_ffn_dim=settings.feed_forward,
        decoder_ffn_dim=settings.feed_forward,
        activation_function=settings.activation,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        max_position_embeddings=POSITIONS,
        scale_embedding=settings.scale_embedding,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        use_cache=True,
    )
    theirs = M2M100ForConditionalGeneration(configuration).eval()
    # This form of generation configuration has no language token to force.
    theirs.generation_config.forced_bos_token_id = None
    theirs.model.shared.weight.copy_(ours.target_embedding.weight)
    places = torch.cat(
        [torch.zeros(PAD + 1, settings.width), sinusoidal(POSITIONS, settings.width)]
    )
    for side, layers, norm in (
        (theirs.model.encoder, ours.encoder, ours.encoder_norm),
        (theirs.model.decoder, ours.decoder, ours.decoder_norm),
    ):
        side.embed_tokens.weight.copy_(ours.target_embedding.weight)
        side.embed_positions.weights = nn.Buffer(places, persistent=False)
        _copy(side.layer_norm, norm)
        for there, here in zip(side.layers, layers, strict=True):
            _layer(there, here)
    theirs.lm_head.weight.copy_(ours.output.weight)
    return theirs


def _layer(there: Any, here: Any) -> None:
    _attention(there.self_attn, here.self_attention)
    _copy(there.self_attn_layer_norm, here.self_residual.norm)
    if hasattr(there, "encoder_attn"):
        _attention(there.encoder_attn, here.cross_attention)
        _copy(there.encoder_attn_layer_norm, here.cross_residual.norm)
    _copy(there.fc1, here.feed_forward.inner)
    _copy(there.fc2, here.feed_forward.outer)
    _copy(there.final_layer_norm, here.feed_forward_residual.norm)


def _attention(there: Any, here: Any) -> None:
    for theirs, ours in (
        (there.q_proj, here.query_projection),
        (there.k_proj, here.key_projection),
        (there.v_proj, here.value_projection),
        (there.out_proj, here.output_projection),
    ):
        _copy(theirs, ours)


def _copy(there: Any, here: Any) -> None:
    there.weight.copy_(here.weight)
    if here.bias is None:
        there.bias.zero_()
    else:
        there.bias.copy_(here.bias)
