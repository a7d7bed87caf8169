"""Export of our Transformers to folders that Hugging Face's MarianMTModel and MarianTokenizer open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import files
from regard.errors import ModelError
from regard.interop.marian.layout import (
    DECODER_WORDS,
    ENCODER_WORDS,
    OUTPUT,
    OUTPUT_BIAS,
    SHARED,
    halves,
    layer_names,
    reordered,
)
from regard.translation import weights
from regard.translation.folders import new_folder
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.runs import Tokenizers
from regard.translation.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from regard.translation.translator import Translator

# Positions that the model may be asked for; the tokenizer cuts at half of it.
_POSITIONS = 1024
_THEIRS = {"gelu_tanh": "gelu_new"}


def export(translator: Translator, folder: Path) -> None:
    """Write the model and its tokenizers to a new folder that `MarianMTModel.from_pretrained` opens.

    It computes the same logits, and with a length penalty of 0 greedy and beam search find the same translations:
    theirs divides by n^alpha, ours by ((5 + n) / 6)^alpha. Our tokenizer normalises the text first, theirs does not.

    Args:
        translator: the translator to export.
        folder: the new folder.

    Raises:
        ModelError: the model has no counterpart among Marian's, or the folder cannot be made.
    """
    model, tokenizers = translator.model, translator.tokenizers
    transformer = _exportable(model)
    settings = transformer.settings
    beam = translator.search.beam
    languages = translator.run.configuration.data
    with new_folder(folder) as unfinished:
        weights.save(_tensors(transformer), unfinished / "model.safetensors")
        _write(unfinished / "config.json", _configuration(settings, tokenizers))
        _write(unfinished / "generation_config.json", _generation(beam))
        _write_tokenizers(unfinished, tokenizers)
        described = {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": languages.source_language,
            "target_lang": languages.target_language,
            "separate_vocabs": not _shared_words(tokenizers),
            "model_max_length": _POSITIONS // 2,
            "eos_token": tokenizers.target.pieces([EOS])[0],
            "unk_token": tokenizers.target.pieces([UNK])[0],
            "pad_token": tokenizers.target.pieces([PAD])[0],
        }
        _write(unfinished / "tokenizer_config.json", described)


def _exportable(model: nn.Module) -> Transformer:
    if not isinstance(model, Transformer):
        raise ModelError(
            f"a {type(model).__name__} cannot be exported: Marian models at Hugging Face are Transformers; "
            "the recurrent ones and ensembles have no counterpart"
        )
    settings = model.settings
    if settings.positions != "sinusoidal":
        elsewhere = "; export to ctranslate2, which takes any table" if model.adds_positions else ""
        raise ModelError(
            f'model.positions is "{settings.positions}": Marian has sines and cosines only{elsewhere}'
        )
    if settings.normalisation != "layer" or settings.gated or not settings.feed_forward_bias:
        raise ModelError(
            "it has norms without a mean, or feed-forward layers with gates or without biases: Marian has none of these"
        )
    if settings.head_width not in (None, settings.width // settings.heads):
        raise ModelError("its heads are together not as wide as the model: Marian's are")
    if settings.norm != "post":
        raise ModelError(
            'model.norm is "pre": Marian normalises after each sublayer, and no choice of weights makes one the '
            'other: train with norm = "post", or export to ctranslate2, which has both'
        )
    return model


def _tensors(model: Transformer) -> dict[str, Tensor]:
    settings = model.settings
    state = {name: tensor.float() for name, tensor in model.state_dict().items()}
    state = reordered(state, halves(settings.width))
    found = {}
    for ours, theirs in layer_names(settings):
        bias = torch.zeros(settings.width)  # only attention may have no bias
        found[theirs] = state.get(ours, bias)
    if settings.tied == "three_way":
        found[SHARED] = state["target_embedding.weight"]
    else:
        found[ENCODER_WORDS] = state["source_embedding.weight"]
        found[DECODER_WORDS] = state["target_embedding.weight"]
    if not _ties(settings):
        found[OUTPUT] = state["output.weight"]
    words = model.output.out_features
    found[OUTPUT_BIAS] = state.get("output.bias", torch.zeros(words)).view(1, words)
    return found


def _configuration(settings: TransformerSettings, tokenizers: Tokenizers) -> dict[str, Any]:
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(tokenizers.source),
        "decoder_vocab_size": len(tokenizers.target),
        "d_model": settings.width,
        "encoder_layers": settings.encoder_layers,
        "decoder_layers": settings.decoder_layers,
        "encoder_attention_heads": settings.heads,
        "decoder_attention_heads": settings.heads,
        "encoder_ffn_dim": settings.feed_forward,
        "decoder_ffn_dim": settings.feed_forward,
        "activation_function": _THEIRS.get(settings.activation, settings.activation),
        "dropout": settings.dropout,
        "max_position_embeddings": _POSITIONS,
        "scale_embedding": settings.scale_embedding,
        "share_encoder_decoder_embeddings": settings.tied == "three_way",
        "tie_word_embeddings": _ties(settings),
        "normalize_before": False,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
        "dtype": "float32",
    }


def _ties(settings: TransformerSettings) -> bool:
    return settings.tied in ("three_way", "target")


def _generation(beam: int) -> dict[str, Any]:
    return {
        "num_beams": beam,
        "early_stopping": True,
        "max_length": _POSITIONS // 2,
        "bad_words_ids": [[PAD], [BOS]],
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }


def _write_tokenizers(folder: Path, tokenizers: Tokenizers) -> None:
    files.write(folder / "source.spm", tokenizers.source.model)
    files.write(folder / "target.spm", tokenizers.target.model)
    _write(folder / "vocab.json", _vocabulary(tokenizers.source))
    if not _shared_words(tokenizers):
        _write(folder / "target_vocab.json", _vocabulary(tokenizers.target))


def _shared_words(tokenizers: Tokenizers) -> bool:
    return _vocabulary(tokenizers.source) == _vocabulary(tokenizers.target)


def _vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    return {piece: id for id, piece in enumerate(tokenizer.pieces(range(len(tokenizer))))}


def _write(path: Path, table: dict[str, Any]) -> None:
    files.write(path, (json.dumps(table, indent=2, ensure_ascii=False) + "\n").encode())
