"""Export of our Transformers to CTranslate2 (https://github.com/OpenNMT/CTranslate2).

An exported model computes the same logits. CTranslate2 has ALiBi in decoders only, so models with ALiBi are refused.
It reads no position beyond its table of positions, and its length penalty is n^alpha where ours is
((5 + n) / 6)^alpha: `engine` ranks hypotheses as our search does.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from regard import files
from regard.attention.blocks import FeedForward, Residual
from regard.attention.heads import MultiHeadAttention
from regard.attention.positions import RelativeBias
from regard.errors import ConfigurationError, ModelError, library
from regard.interop.altered import refuse_altered
from regard.translation import checksums
from regard.translation.models.transformer.model import Transformer
from regard.translation.models.transformer.positions import SCHEMES
from regard.translation.runs.layout import new_folder
from regard.translation.settings.search import SearchSettings
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from regard.translation.translator import Translator

Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8", "int8_float32"]

# Rows of the table of positions: by default CTranslate2 cuts sources at 1,024 pieces.
_POSITIONS = 1025
# Keys of config.json: the number of learned positions, the search that the model was configured for, and the language
# in which sentences are found, null where every line is one.
LONGEST = "learned_positions"
SEARCH = "search"
LANGUAGE = "sentence_language"
# A logit so low that the probability is 0, for padding and begin; float16 can hold it.
_NEVER = -30000.0


def export(translator: Translator, folder: Path, quantization: Quantization = "float32") -> None:
    """Write the model and its tokenizers to a new folder that CTranslate2 opens.

    Sources are given as pieces without an end (the engine adds it); translations come back as pieces.

    Args:
        quantization: how the weights are stored, "int8" for a quarter of the size.

    Raises:
        ModelError: the model is not a Transformer, has ALiBi or was altered, such as by hooks, or the folder
            cannot be made.
        ConfigurationError: ctranslate2 is not installed, or there is no such quantization.
    """
    if quantization not in get_args(Quantization):
        raise ConfigurationError(
            f"quantization {quantization!r}: use one of {', '.join(get_args(Quantization))}"
        )
    tokenizers = translator.tokenizers
    filled = specification(translator.model, tokenizers.source, tokenizers.target)
    search = translator.search
    settings = {name: getattr(search, name) for name in SearchSettings.model_fields}
    filled.config.add_attribute(SEARCH, settings)
    filled.config.add_attribute(LANGUAGE, translator.sentence_language)
    filled.validate()
    filled.optimize(quantization=quantization)
    with new_folder(folder) as unfinished:
        filled.save(str(unfinished))
        for name, content in tokenizers.files().items():
            files.write(unfinished / name, content)
        checksums.sign(unfinished, [path.name for path in unfinished.iterdir()])


@torch.no_grad()
def specification(model: nn.Module, source: Tokenizer, target: Tokenizer) -> Any:
    """A `ctranslate2.specs.TransformerSpec` that holds the weights of a model."""
    if not isinstance(model, Transformer):
        raise ModelError(
            f"a {type(model).__name__} cannot be exported: CTranslate2 has no recurrent layers and serves "
            "no ensembles; it takes a single Transformer"
        )
    refuse_altered(model, ModelError)
    settings, specs = model.settings, library("ctranslate2", "ctranslate2").specs
    if settings.positions not in ("sinusoidal", "learned", "rotary", "relative", "none"):
        reason = (
            "has it for decoders alone" if settings.positions == "alibi" else "does not have it"
        )
        raise ModelError(
            f'model.positions is "{settings.positions}": CTranslate2 {reason}; translate with the engine regard'
        )
    if not settings.plain_attention:
        raise ModelError(
            f'model.score is "{settings.score}" and model.normaliser "{settings.normaliser}": CTranslate2 has the '
            "softmax of scaled dot products only; translate with the engine regard"
        )
    spec = _empty(settings, specs)
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        if name == "encoder":
            side.embeddings[0].weight = _array(model.source_embedding.weight)
        else:
            side.embeddings.weight = _array(model.target_embedding.weight)
        side.scale_embeddings = settings.scale_embedding
        if model.adds_positions:
            learned = settings.positions == "learned"
            if learned:
                scale = settings.width**0.5 if settings.scale_embedding else 1.0
                table = scale * model.positions
            else:
                table = SCHEMES[settings.positions].table(_POSITIONS, settings.width)
            side.position_encodings.encodings = _array(table)
        relative = getattr(model, f"{name}_bias")
        for layer_spec, layer in zip(side.layer, getattr(model, name), strict=True):
            self_attention = layer_spec.self_attention
            _attention(self_attention, layer.self_attention, layer.self_residual)
            if isinstance(relative, RelativeBias):
                self_attention.relative_attention_bias = _array(relative.weight)
                self_attention.relative_attention_max_distance = np.int32(relative.furthest)
            if name == "decoder":
                _attention(layer_spec.attention, layer.cross_attention, layer.cross_residual)
            _feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual)
        if settings.norm == "pre":
            _norm(side.layer_norm, getattr(model, f"{name}_norm"))
    _linear(spec.decoder.projection, model.output)
    bias = torch.zeros(model.output.out_features)
    if model.output.bias is not None:
        bias += model.output.bias.cpu()
    bias[[PAD, BOS]] = _NEVER
    spec.decoder.projection.bias = _array(bias)
    spec.register_source_vocabulary(source.pieces(range(len(source))))
    spec.register_target_vocabulary(target.pieces(range(len(target))))
    unknown, begin, end = target.pieces([UNK, BOS, EOS])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unknown, begin, end
    spec.config.decoder_start_token = begin
    spec.config.add_source_eos = True
    if model.longest is not None:
        spec.config.add_attribute(LONGEST, model.longest)
    return spec


def _empty(settings: TransformerSettings, specs: Any) -> Any:
    """The specification of this shape, without weights."""
    activations = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
    shape = {
        "pre_norm": settings.norm == "pre",
        "activation": getattr(specs.common_spec.Activation, activations[settings.activation]),
        "ffn_glu": settings.gated,
        "rms_norm": settings.normalisation == "rms",
        "relative_attention_bias": settings.positions == "relative",
        "head_dim": settings.head_width,
    }
    if settings.positions == "rotary":
        shape |= {"rotary_dim": 0, "rotary_interleave": False}  # 0: all channels
    encoder = specs.TransformerEncoderSpec(settings.encoder_layers, settings.heads, **shape)
    decoder = specs.TransformerDecoderSpec(settings.decoder_layers, settings.heads, **shape)
    if settings.positions == "rotary":
        for side in (encoder, decoder):
            if hasattr(side, "position_encodings"):
                del side.position_encodings
    return specs.TransformerSpec(encoder, decoder)


def _attention(spec: Any, attention: MultiHeadAttention, residual: Residual) -> None:
    spec.queries_scale = attention.d_head**-0.5
    query, output = attention.query_projection, attention.output_projection
    pair = attention.key_projection, attention.value_projection
    # The projections of one input are one: of query, key and value, or of key and value across.
    stacked = [(query, *pair), (output,)] if len(spec.linear) == 2 else [(query,), pair, (output,)]
    for linear, layers in zip(spec.linear, stacked, strict=True):
        _linear(linear, *layers)
    _norm(spec.layer_norm, residual.norm)


def _feed_forward(spec: Any, layer: FeedForward, residual: Residual) -> None:
    _linear(spec.linear_0, layer.inner)
    if layer.gate is not None:
        _linear(spec.linear_0_noact, layer.gate)
    _linear(spec.linear_1, layer.outer)
    _norm(spec.layer_norm, residual.norm)


def _linear(spec: Any, *layers: nn.Linear) -> None:
    """One layer, or several as a single one, in this order."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    if biases:
        spec.bias = _array(torch.cat(biases))


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    """A copy: quantization works in place, and would write into our model."""
    return tensor.detach().float().cpu().numpy().copy()
