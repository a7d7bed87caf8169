"""Marian models (Junczys-Dowmunt et al. 2018, arXiv 1804.00344; OPUS-MT: Tiedemann and Thottingal 2020) as runs.

A Marian model is a post-norm Transformer with biases in attention. Its positions are sines in the first half of the
channels and cosines in the second, ours alternate. So the residual channels are put into our order: every weight that
reads or writes them is permuted, and the model computes exactly the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from regard.interop.huggingface.configuration import HuggingFaceConfiguration, Id, Size, read_table
from regard.interop.huggingface.run import HuggingFaceRun, Tensors, renamed
from regard.interop.huggingface.tokenizer import NumberedTokenizer, VocabularyMap
from regard.translation.models.transformer.model import Transformer
from regard.translation.runs import Tokenizers
from regard.translation.settings.base import Rate, Small, Width
from regard.translation.settings.transformer import Activation, Tied, TransformerSettings

SHARED = "model.shared.weight"
ENCODER_WORDS = "model.encoder.embed_tokens.weight"
DECODER_WORDS = "model.decoder.embed_tokens.weight"
OUTPUT, OUTPUT_BIAS = "lm_head.weight", "final_logits_bias"
# Tables of sines, which we compute; older files hold them.
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
# By whether both sides share their embeddings, and whether the output layer is those of the target.
_TIED: dict[tuple[bool, bool], Tied] = {
    (True, True): "three_way",
    (True, False): "embeddings",
    (False, True): "target",
    (False, False): "none",
}
# Parts of our names of weights, and of theirs.
_PARTS = {
    "encoder.": "model.encoder.layers.",
    "decoder.": "model.decoder.layers.",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "query_projection": "q_proj",
    "key_projection": "k_proj",
    "value_projection": "v_proj",
    "output_projection": "out_proj",
    "self_residual.norm": "self_attn_layer_norm",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
# Weights that read the residual channels have them on their last axis; weights that write them, on their first.
_READS = (
    "embedding.weight",
    "query_projection.weight",
    "key_projection.weight",
    "value_projection.weight",
    "inner.weight",
    "output.weight",
)
_WRITES = tuple(
    f"{module}.{part}"
    for module in ("output_projection", "outer", "norm")
    for part in ("weight", "bias")
)
# The language that a multilingual model is to write: ">>fra<<" before the text.
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*(.*)", re.DOTALL)


class MarianConfiguration(HuggingFaceConfiguration):
    """The keys that we understand, with Hugging Face's defaults."""

    vocab_size: Size = 58101
    decoder_vocab_size: Size | None = None
    d_model: Annotated[Width, Field(multiple_of=2)] = 1024
    encoder_layers: Small = 12
    decoder_layers: Small = 12
    encoder_attention_heads: Small = 16
    decoder_attention_heads: Small = 16
    encoder_ffn_dim: Width = 4096
    decoder_ffn_dim: Width = 4096
    activation_function: str = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Rate = 0.1
    pad_token_id: Id = 58100
    decoder_start_token_id: Id = 58100
    eos_token_id: Id = 0
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False

    @property
    def target_size(self) -> int:
        shared = self.share_encoder_decoder_embeddings
        return self.vocab_size if shared or not self.decoder_vocab_size else self.decoder_vocab_size

    def settings(self) -> TransformerSettings:
        """The shape of our Transformer that computes the same."""
        return TransformerSettings(
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            width=self.d_model,
            heads=self.encoder_attention_heads,
            feed_forward=self.encoder_ffn_dim,
            activation=ACTIVATIONS[self.activation_function],
            norm="post",
            tied=_TIED[self.share_encoder_decoder_embeddings, self.tie_word_embeddings],
            dropout=self.dropout,
            attention_bias=True,
            output_bias=True,
            scale_embedding=self.scale_embedding,
        )

    def objections(self) -> list[tuple[bool, str, str]]:
        sides = (
            "expected {}, as in the encoder; this library has one setting for both sides: run the model"
            " with transformers, where regard.watch can look into it"
        )
        norms = "Marian normalises after each sublayer and nowhere else"
        nowhere = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
        differences = [(getattr(self, key), key, norms) for key in nowhere]
        for key in ("attention_heads", "ffn_dim"):
            expected, decoder_key = getattr(self, f"encoder_{key}"), f"decoder_{key}"
            differences.append(
                (getattr(self, decoder_key) != expected, decoder_key, sides.format(expected))
            )
        heads, supported = self.encoder_attention_heads, f"known are {', '.join(ACTIVATIONS)}"
        return [
            (self.activation_function not in ACTIVATIONS, "activation_function", supported),
            (self.d_model % heads != 0, "d_model", f"it is no multiple of {heads} heads"),
            *differences,
            *super().objections(),
        ]


class MarianTokenizer(NumberedTokenizer):
    """A language code before the text, ">>fra<<", is one piece where the table has it."""

    def _cut(self, text: str) -> list[str]:
        code = _LANGUAGE.fullmatch(text)
        if code is not None and code[1] in self._ids:
            return [code[1], *super()._cut(code[2])]
        return super()._cut(text)


@dataclass(frozen=True)
class MarianRun(HuggingFaceRun):
    """A folder of MarianMTModel.save_pretrained and MarianTokenizer.save_pretrained."""

    theirs: MarianConfiguration

    @classmethod
    def open(cls, folder: Path) -> MarianRun:
        """Raises `ModelError` unless the folder is a Marian model's."""
        theirs = MarianConfiguration.read(folder)
        described = read_table(folder / "tokenizer_config.json", missing={})
        languages = [described.get(f"{side}_lang") for side in ("source", "target")]
        source, target = (name if isinstance(name, str) else "unknown" for name in languages)
        ours = theirs.for_run(theirs.settings(), joint=False, source=source, target=target)
        return cls(folder, ours, theirs)

    def tokenizers(self) -> Tokenizers:
        source, target = self.words
        return Tokenizers(
            MarianTokenizer.read(self.file("source.spm"), source),
            MarianTokenizer.read(self.file("target.spm"), target),
        )

    @cached_property
    def words(self) -> tuple[VocabularyMap, VocabularyMap]:
        shared = self._words("vocab.json", self.theirs.vocab_size)
        size, target_table = self.theirs.target_size, self.folder / "target_vocab.json"
        if not target_table.exists() and (
            self.theirs.share_encoder_decoder_embeddings or size == self.theirs.vocab_size
        ):
            return shared, shared
        return shared, self._words(target_table.name, size)

    def _words(self, name: str, size: int) -> VocabularyMap:
        path = self.file(name)
        return VocabularyMap.of(path, read_table(path), size, self.theirs)

    def transformer(self) -> Transformer:
        theirs, (source, target), settings = self.theirs, self.words, self.theirs.settings()
        size, width = theirs.target_size, settings.width
        take = Tensors(self.folder, _POSITIONS)
        state = dict(take.layers(settings, their_name))
        shared, tied = theirs.share_encoder_decoder_embeddings, theirs.tie_word_embeddings
        names = [SHARED, ENCODER_WORDS, DECODER_WORDS] if shared else [DECODER_WORDS]
        names += [OUTPUT] if tied else []
        state["target_embedding.weight"] = take.alike(names, (size, width))[target.rows]
        if not shared:
            words = take(ENCODER_WORDS, (theirs.vocab_size, width))
            state["source_embedding.weight"] = words[source.rows]
        if not tied:
            state["output.weight"] = take(OUTPUT, (size, width))[target.rows]
        bias = take.maybe(OUTPUT_BIAS, (1, size))
        bias = torch.zeros(1, size) if bias is None else bias
        state["output.bias"] = bias[0, target.rows]
        state = reordered(state, halves(width).argsort())
        return take.build("Marian", settings, state, source, target)


def their_name(ours: str) -> str:
    """Marian's name of a weight of a layer of ours.

    >>> their_name("encoder.0.feed_forward.inner.weight")
    'model.encoder.layers.0.fc1.weight'
    """
    return renamed(ours, _PARTS)


def halves(width: int) -> Int[Tensor, " width"]:
    """For each channel of theirs, sines then cosines, the channel of ours that it is.

    >>> halves(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def reordered(tensors: Mapping[str, Tensor], order: Int[Tensor, " width"]) -> dict[str, Tensor]:
    """The weights of a model, by our names, with its channels in another order: channel i is the old order[i]."""
    columns = {
        name: tensor[..., order] for name, tensor in tensors.items() if name.endswith(_READS)
    }
    rows = {name: tensor[order] for name, tensor in tensors.items() if name.endswith(_WRITES)}
    return {**tensors, **columns, **rows}
