"""Export of our Transformers to folders that Hugging Face's MarianMTModel and MarianTokenizer open."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import files
from regard.errors import ModelError
from regard.interop.altered import refuse_altered
from regard.interop.huggingface.marian import (
    ACTIVATIONS,
    DECODER_WORDS,
    ENCODER_WORDS,
    OUTPUT,
    OUTPUT_BIAS,
    SHARED,
    halves,
    reordered,
    their_name,
)
from regard.translation import weights
from regard.translation.models.transformer.model import Transformer
from regard.translation.runs.layout import new_folder
from regard.translation.text.tokenizer import BOS, EOS, PAD, UNK
from regard.translation.translator import Translator

# Positions that the model may be asked for; the tokenizer cuts at half of it.
_POSITIONS = 1024
_IDS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}


def export(translator: Translator, folder: Path) -> None:
    """Write the model and its tokenizers to a new folder that `MarianMTModel.from_pretrained` opens.

    It computes the same logits, and with a length penalty of 0 greedy and beam search find the same translations:
    theirs divides by n^alpha, ours by ((5 + n) / 6)^alpha. Our tokenizer normalises the text first, theirs does not.

    Raises:
        ModelError: the model has no counterpart among Marian's, or the folder cannot be made.
    """
    model, tokenizers = _exportable(translator.model), translator.tokenizers
    languages = translator.run.configuration.data
    words = [
        {piece: id for id, piece in enumerate(each.pieces(range(len(each))))}
        for each in (tokenizers.source, tokenizers.target)
    ]
    names = tokenizers.target.pieces([EOS, UNK, PAD])
    tables: dict[str, dict[str, Any]] = {
        "config.json": _configuration(model),
        "generation_config.json": {
            "num_beams": translator.search.beam,
            "early_stopping": True,
            "max_length": _POSITIONS // 2,
            "bad_words_ids": [[PAD], [BOS]],
            **_IDS,
        },
        "vocab.json": words[0],
        **({"target_vocab.json": words[1]} if words[0] != words[1] else {}),
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": languages.source_language,
            "target_lang": languages.target_language,
            "separate_vocabs": words[0] != words[1],
            "model_max_length": _POSITIONS // 2,
            **dict(zip(("eos_token", "unk_token", "pad_token"), names, strict=True)),
        },
    }
    with new_folder(folder) as unfinished:
        weights.save(_tensors(model), unfinished / "model.safetensors")
        files.write(unfinished / "source.spm", tokenizers.source.model)
        files.write(unfinished / "target.spm", tokenizers.target.model)
        for name, table in tables.items():
            content = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
            files.write(unfinished / name, content.encode())


def _exportable(model: nn.Module) -> Transformer:
    if not isinstance(model, Transformer):
        raise ModelError(
            f"a {type(model).__name__} cannot be exported: Marian models at Hugging Face are Transformers; "
            "the recurrent ones and ensembles have no counterpart"
        )
    refuse_altered(model, ModelError)
    settings = model.settings
    if settings.positions != "sinusoidal":
        elsewhere = "; export to ctranslate2, which takes any table" if model.adds_positions else ""
        raise ModelError(
            f'model.positions is "{settings.positions}": Marian has sines and cosines only{elsewhere}'
        )
    if not settings.plain_attention:
        raise ModelError(
            f'model.score is "{settings.score}" and model.normaliser "{settings.normaliser}": Marian has the softmax '
            "of scaled dot products only"
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
    tensors = {}
    for name, tensor in state.items():
        if name.startswith(("encoder.", "decoder.")):
            tensors[their_name(name)] = tensor
        if name.endswith("projection.weight"):  # only attention may have no bias
            bias = name.removesuffix("weight") + "bias"
            tensors[their_name(bias)] = state.get(bias, torch.zeros(settings.width))
    if settings.tied == "three_way":
        tensors[SHARED] = state["target_embedding.weight"]
    else:
        tensors[ENCODER_WORDS] = state["source_embedding.weight"]
        tensors[DECODER_WORDS] = state["target_embedding.weight"]
    if settings.tied not in ("three_way", "target"):
        tensors[OUTPUT] = state["output.weight"]
    words = model.output.out_features
    tensors[OUTPUT_BIAS] = state.get("output.bias", torch.zeros(words)).view(1, words)
    return tensors


def _configuration(model: Transformer) -> dict[str, Any]:
    settings = model.settings
    theirs = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "swish"}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.source_embedding.num_embeddings,
        "decoder_vocab_size": model.output.out_features,
        "d_model": settings.width,
        "encoder_layers": settings.encoder_layers,
        "encoder_attention_heads": settings.heads,
        "encoder_ffn_dim": settings.feed_forward,
        "decoder_layers": settings.decoder_layers,
        "decoder_attention_heads": settings.heads,
        "decoder_ffn_dim": settings.feed_forward,
        "activation_function": theirs[settings.activation],
        "dropout": settings.dropout,
        "max_position_embeddings": _POSITIONS,
        "scale_embedding": settings.scale_embedding,
        "share_encoder_decoder_embeddings": settings.tied == "three_way",
        "tie_word_embeddings": settings.tied in ("three_way", "target"),
        "normalize_before": False,
        "dtype": "float32",
        **_IDS,
    }
