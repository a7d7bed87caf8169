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
        for their_layer, our_layer in zip(side.layers, layers, strict=True):
            _layer(their_layer, our_layer)
    theirs.lm_head.weight.copy_(ours.output.weight)
    return theirs


def _layer(theirs: Any, ours: Any) -> None:
    _attention(theirs.self_attn, ours.self_attention)
    _copy(theirs.self_attn_layer_norm, ours.self_residual.norm)
    if hasattr(theirs, "encoder_attn"):
        _attention(theirs.encoder_attn, ours.cross_attention)
        _copy(theirs.encoder_attn_layer_norm, ours.cross_residual.norm)
    _copy(theirs.fc1, ours.feed_forward.inner)
    _copy(theirs.fc2, ours.feed_forward.outer)
    _copy(theirs.final_layer_norm, ours.feed_forward_residual.norm)


def _attention(their_module: Any, our_module: Any) -> None:
    for theirs, ours in (
        (their_module.q_proj, our_module.query_projection),
        (their_module.k_proj, our_module.key_projection),
        (their_module.v_proj, our_module.value_projection),
        (their_module.out_proj, our_module.output_projection),
    ):
        _copy(theirs, ours)


def _copy(theirs: Any, ours: Any) -> None:
    theirs.weight.copy_(ours.weight)
    if ours.bias is None:
        theirs.bias.zero_()
    else:
        theirs.bias.copy_(ours.bias)
