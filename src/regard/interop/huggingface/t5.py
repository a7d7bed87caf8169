"""T5 models (Raffel et al. 2020, arXiv 1910.10683; T5 1.1, Flan-T5, mT5, MADLAD-400) as runs.

T5 is a pre-norm Transformer without biases, whose norms have no mean. Two differences are multiplied into weights. Its
scores are not divided by the root of the head's width, so the query projection is multiplied by that root. The input of
a tied output layer is divided by the root of the model's width, so the weight of the last norm is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigurationError, ModelError
from regard.interop.huggingface import sentencepiece_check
from regard.interop.huggingface.configuration import (
    LARGEST_FILE,
    HuggingFaceConfiguration,
    Id,
    Size,
)
from regard.interop.huggingface.run import HuggingFaceRun, Tensors, renamed
from regard.interop.huggingface.tokenizer import NumberedTokenizer, VocabularyMap
from regard.translation import checksums
from regard.translation.models.transformer.model import Transformer
from regard.translation.runs import Tokenizers
from regard.translation.settings.base import Rate, Small, Width
from regard.translation.settings.transformer import Activation, Tied, TransformerSettings

# Names of one tensor; files converted from T5X have only the second and third.
_WORDS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_OUTPUT = "lm_head.weight"
# Files of the first T5 have relative positions of cross-attention, which no model reads.
_UNUSED = ("EncDecAttention.relative_attention_bias.weight",)
_PIECES = "spiece.model"
_LONGEST_PREFIX = 500
# A message lists at most so many languages; of more, those with a similar code.
_MOST_LISTED = 20

# The values of feed_forward_proj: the activation, and whether there is a gate. Gated GELU is the approximate one.
_FEED_FORWARD: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu_tanh", False),
    "silu": ("silu", False),
    "gated-relu": ("relu", True),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}
# Parts of our names of weights, and of theirs; "last" is the number of the feed-forward part of a layer.
_PARTS = {
    "coder.": "coder.block.",
    "_norm.weight": ".final_layer_norm.weight",
    "_bias.weight": ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "self_attention": "layer.0.SelfAttention",
    "cross_attention": "layer.1.EncDecAttention",
    "query_projection": "q",
    "key_projection": "k",
    "value_projection": "v",
    "output_projection": "o",
    "self_residual.norm": "layer.0.layer_norm",
    "cross_residual.norm": "layer.1.layer_norm",
    "feed_forward_residual.norm": "layer.last.layer_norm",
    "feed_forward.inner": "layer.last.DenseReluDense.wi_0",
    "feed_forward.gate": "layer.last.DenseReluDense.wi_1",
    "feed_forward.outer": "layer.last.DenseReluDense.wo",
}
# Pieces that name a language (MADLAD-400), and names of tasks that do.
_TAG = re.compile(r"<2([A-Za-z]{2,3}(?:[_-][0-9A-Za-z]{1,8})*)>")
_TASK = re.compile(r"translation_([0-9A-Za-z-]{1,16})_to_([0-9A-Za-z-]{1,16})")


class T5Configuration(HuggingFaceConfiguration):
    """The keys that we understand, with Hugging Face's defaults."""

    model_type: str = "t5"
    vocab_size: Size = 32128
    d_model: Width = 512
    d_kv: Width = 64
    d_ff: Width = 2048
    num_layers: Small = 6
    num_decoder_layers: Small | None = None
    num_heads: Small = 8
    relative_attention_num_buckets: Small = 32
    relative_attention_max_distance: Size = 128
    dropout_rate: Rate = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str | None = None
    pad_token_id: Id = 0
    decoder_start_token_id: Id = 0
    eos_token_id: Id = 1
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    task_specific_params: dict[str, Any] | None = None

    @property
    def feed_forward(self) -> str:
        if self.feed_forward_proj is None:
            return "relu" if self.model_type == "t5" else "gated-gelu"
        return self.feed_forward_proj

    @property
    def scales_output(self) -> bool:
        """Whether the input of the output layer is divided by the root of the width.

        The first T5 does that, and ties its output layer to the embeddings. Folders written before version 5 of
        transformers record only that the layer is tied.
        """
        scales = self.scale_decoder_outputs
        return self.model_type == "t5" and (self.tie_word_embeddings if scales is None else scales)

    def settings(self, tied: Tied) -> TransformerSettings:
        """The shape of our Transformer that computes the same."""
        activation, gated = _FEED_FORWARD[self.feed_forward]
        return TransformerSettings(
            encoder_layers=self.num_layers,
            decoder_layers=self.num_decoder_layers or self.num_layers,
            width=self.d_model,
            heads=self.num_heads,
            head_width=self.d_kv,
            feed_forward=self.d_ff,
            activation=activation,
            gated=gated,
            normalisation="rms",
            positions="relative",
            relative_buckets=self.relative_attention_num_buckets,
            relative_furthest=self.relative_attention_max_distance,
            tied=tied,
            dropout=self.dropout_rate,
            feed_forward_bias=False,
            output_bias=True,
            scale_embedding=False,
        )

    def objections(self) -> list[tuple[bool, str, str]]:
        buckets = self.relative_attention_num_buckets
        supported = f"known are {', '.join(_FEED_FORWARD)}"
        return [
            (self.feed_forward not in _FEED_FORWARD, "feed_forward_proj", supported),
            (self.layer_norm_epsilon != 1e-6, "layer_norm_epsilon", "ours is 1e-06"),
            (buckets % 4 != 0, "relative_attention_num_buckets", "ours are a multiple of 4"),
            (
                self.relative_attention_max_distance <= buckets // 2,
                "relative_attention_max_distance",
                f"the decoder tells {buckets // 2} distances apart one by one, it must be more",
            ),
            *super().objections(),
        ]


@dataclass(frozen=True)
class T5Run(HuggingFaceRun):
    """A folder of T5ForConditionalGeneration.save_pretrained, with its tokenizer's spiece.model."""

    theirs: T5Configuration

    @classmethod
    def open(cls, folder: Path) -> T5Run:
        """Raises `ModelError` unless the folder is a T5 model's."""
        theirs = T5Configuration.read(folder)
        return cls(folder, theirs.for_run(theirs.settings("three_way"), joint=True), theirs)

    def tokenizers(self) -> Tokenizers:
        tokenizer = NumberedTokenizer.read(self.file(_PIECES), self.words[0])
        return Tokenizers(tokenizer, tokenizer)

    def directed(self, tokenizers: Tokenizers, to: str | None) -> Tokenizers:
        """The tokenizers with the prefix that the folder has for a language; with None, without a prefix."""
        if to is None:
            return tokenizers
        by_language = prefixes(self.words[0].names, self.theirs.task_specific_params)
        source = tokenizers.source
        if to not in by_language or not isinstance(source, NumberedTokenizer):
            raise ConfigurationError(
                f"--to {to}: {self.folder} names {_enumerated(list(by_language), to)}: leave it out, and begin each "
                "text with the words that the model was trained with"
            )
        if len(by_language[to]) > _LONGEST_PREFIX:
            raise ModelError(
                f"{self.folder}: its prefix for {to} is {len(by_language[to])} characters long, expected at most "
                f"{_LONGEST_PREFIX}"
            )
        return Tokenizers(source.prefixed(by_language[to]), tokenizers.target)

    @cached_property
    def words(self) -> tuple[VocabularyMap, VocabularyMap]:
        path = self.file(_PIECES)
        pieces = sentencepiece_check.check(checksums.content(path, None, LARGEST_FILE), str(path))
        (unknown,) = (name for name, kind in pieces if kind == sentencepiece_check.UNKNOWN)
        table = {name: id for id, (name, _) in enumerate(pieces)}
        words = VocabularyMap.of(path, table, self.theirs.vocab_size, self.theirs, unknown)
        return words, words

    def transformer(self) -> Transformer:
        theirs, (words, _) = self.theirs, self.words
        take = Tensors(self.folder, _UNUSED)
        settings = theirs.settings("three_way")
        state = dict(take.layers(settings, lambda ours: their_name(ours, gated=settings.gated)))
        for name, weight in state.items():
            if name.endswith("query_projection.weight"):
                state[name] = weight * theirs.d_kv**0.5
        if theirs.scales_output:
            state["decoder_norm.weight"] = state["decoder_norm.weight"] * theirs.d_model**-0.5
        size = (theirs.vocab_size, theirs.d_model)
        embedding, output = take.alike(_WORDS, size), take.maybe(_OUTPUT, size)
        state["target_embedding.weight"] = embedding[words.rows]
        state["output.bias"] = torch.zeros(len(words.rows))
        # An output layer in the file is used even where config.json ties it, as transformers does.
        if output is not None and not torch.equal(embedding, output):
            settings = theirs.settings("embeddings")
            state["output.weight"] = output[words.rows]
        return take.build("T5", settings, state, words, words)


def their_name(ours: str, *, gated: bool) -> str:
    """T5's name of a weight of ours.

    >>> their_name("decoder.1.feed_forward.inner.weight", gated=True)
    'decoder.block.1.layer.2.DenseReluDense.wi_0.weight'
    """
    feed_forward_layer = "layer.1" if ours.startswith("encoder") else "layer.2"
    theirs = renamed(ours, {**_PARTS, "layer.last": feed_forward_layer})
    return theirs if gated else theirs.replace("wi_0", "wi")


def _enumerated(names: list[str], like: str) -> str:
    if len(names) > _MOST_LISTED:
        close = get_close_matches(like, names[:10_000], 5, 0.4) or names[:5]
        return f"{', '.join(close)} and {len(names) - len(close)} more"
    return ", ".join(names) or "no language"


def prefixes(names: list[str], tasks: Mapping[str, Any] | None) -> dict[str, str]:
    """The prefix of a text by the language to translate into ("de"), and by the pair of languages ("en-de").

    They are found among the pieces, and among the tasks of config.json (`task_specific_params`).

    >>> prefixes(["<2fr>", "<2zh_Hant>", "<2translate>"], None)
    {'fr': '<2fr>', 'zh_Hant': '<2zh_Hant>'}
    >>> prefixes([], {"translation_en_to_de": {"prefix": "translate English to German: "}})
    {'en-de': 'translate English to German: ', 'de': 'translate English to German: '}
    """
    by_language = {tag[1]: name for name in names if (tag := _TAG.fullmatch(name))}
    into: dict[str, list[str]] = {}
    for task, options in (tasks or {}).items():
        pair = _TASK.fullmatch(task)
        prefix = options.get("prefix") if isinstance(options, dict) else None
        if pair is not None and isinstance(prefix, str):
            by_language[f"{pair[1]}-{pair[2]}"] = prefix
            into.setdefault(pair[2], []).append(prefix)
    return by_language | {language: given[0] for language, given in into.items() if len(given) == 1}
