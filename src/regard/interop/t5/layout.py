"""The names of the weights of a T5 model and of ours.

T5 (Raffel et al. 2020, arXiv 1910.10683) is a pre-norm Transformer without biases, whose norms have no mean. Two
differences are multiplied into weights. Its scores are not divided by the root of the head's width, so the query
projection is multiplied by that root. The input of a tied output layer is divided by the root of the model's width, so
the weight of the last norm is.
"""

from __future__ import annotations

from collections.abc import Iterator

from regard.interop.t5.configuration import T5Configuration

SHARED = "shared.weight"
# Other names of the same tensor; files converted from T5X have only these.
WORDS = (SHARED, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
LAST_NORM = "decoder_norm.weight"

_PROJECTIONS = {
    "query_projection": "q",
    "key_projection": "k",
    "value_projection": "v",
    "output_projection": "o",
}

Shape = tuple[int, ...]


def is_unused(name: str) -> bool:
    """Whether no model reads this tensor: files of the first T5 have relative positions of cross-attention."""
    return name.endswith("EncDecAttention.relative_attention_bias.weight")


def names(configuration: T5Configuration) -> Iterator[tuple[str, str, Shape]]:
    """Our name, their name and the shape of every weight except the embeddings and the output layer."""
    found = configuration
    layers = {"encoder": found.num_layers, "decoder": found.num_decoder_layers or found.num_layers}
    for side, count in layers.items():
        yield (
            f"{side}_bias.weight",
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            (found.relative_attention_num_buckets, found.num_heads),
        )
        yield f"{side}_norm.weight", f"{side}.final_layer_norm.weight", (found.d_model,)
        for layer in range(count):
            for ours, theirs, shape in _layer(found, side):
                yield (
                    f"{side}.{layer}.{ours}.weight",
                    f"{side}.block.{layer}.layer.{theirs}.weight",
                    shape,
                )


def _layer(found: T5Configuration, side: str) -> Iterator[tuple[str, str, Shape]]:
    width, heads, inner = found.d_model, found.num_heads * found.d_kv, found.d_ff
    attentions = {"self": "SelfAttention"}
    if side == "decoder":
        attentions["cross"] = "EncDecAttention"
    for place, (ours, theirs) in enumerate(attentions.items()):
        for own, letter in _PROJECTIONS.items():
            shape = (width, heads) if letter == "o" else (heads, width)
            yield f"{ours}_attention.{own}", f"{place}.{theirs}.{letter}", shape
        yield f"{ours}_residual.norm", f"{place}.layer_norm", (width,)
    last = f"{len(attentions)}.DenseReluDense"
    yield "feed_forward.inner", f"{last}.wi_0" if found.gated else f"{last}.wi", (inner, width)
    if found.gated:
        yield "feed_forward.gate", f"{last}.wi_1", (inner, width)
    yield "feed_forward.outer", f"{last}.wo", (width, inner)
    yield "feed_forward_residual.norm", f"{len(attentions)}.layer_norm", (width,)
