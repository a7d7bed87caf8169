"""The attention of the words of a given translation to the words of its source, by layer and head."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ConfigurationError, ModelError
from regard.translation.aligning.words import Words, in_pieces
from regard.translation.decoding import forced
from regard.translation.models.protocol import Looks, TranslationModel
from regard.translation.runs import Tokenizers
from regard.translation.text.batches import grouped, sources

# A sentence in words, and its translation.
WordPair = tuple[Sequence[str], Sequence[str]]
# The most attention weights of a batch: they bound the memory.
_BATCH_CELLS = 2**20
_CROSS = re.compile(r"decoder\.(\d+)\.cross")


class NoAttentionError(ConfigurationError):
    """A model has no attention to the source."""


@dataclass(frozen=True)
class WordAttention:
    """The attention of the words of one translation.

    Attributes:
        written: by layer, the weights of the steps that *write* a target word, (heads, target words, source words).
        read: by layer, the weights of the steps that have *just read* it (shifted).
    """

    source: Words
    target: Words
    written: dict[int, Float[Tensor, "heads target source"]] = field(default_factory=dict)
    read: dict[int, Float[Tensor, "heads target source"]] = field(default_factory=dict)


def word_attentions(
    model: TranslationModel,
    tokenizers: Tokenizers,
    pairs: Sequence[WordPair],
    layers: Sequence[int] | None = None,
) -> list[WordAttention]:
    """Run the model on given translations and collect the attention of their words.

    The weight of a source word is the sum over its pieces, and that of a target word the mean over
    its pieces. The weight of the end of the source is left out.

    Args:
        pairs: sentences and translations in words.
        layers: of the decoder, from 0; all of them by default.

    Raises:
        NoAttentionError: the model has no attention to the source.
        ConfigurationError: it has no such layer.
        ModelError: the attention is not finite.
    """
    longest = model.longest_source
    readings = [
        WordAttention(
            in_pieces(tokenizers.source, source).shortened(longest),
            in_pieces(tokenizers.target, target).shortened(longest),
        )
        for source, target in pairs
    ]
    fill_weights(model, readings, layers)
    return readings


def fill_weights(
    model: TranslationModel, readings: Sequence[WordAttention], layers: Sequence[int] | None = None
) -> None:
    """Run the model on sentences in pieces and fill in their weights. The rest is as of `word_attentions`."""
    sizes = [(len(reading.source.ids), len(reading.target.ids)) for reading in readings]

    def length(row: int) -> int:
        return max(sizes[row]) + 1

    def fits(batch: list[int], row: int) -> bool:
        return (len(batch) + 1) * length(row) ** 2 <= _BATCH_CELLS // 8

    full = (row for row, size in enumerate(sizes) if all(size))
    for rows in grouped(sorted(full, key=length), fits):
        _read(model, [readings[row] for row in rows], layers)


def _read(
    model: TranslationModel, readings: list[WordAttention], layers: Sequence[int] | None
) -> None:
    """Fill in the weights of a batch."""
    device = next(model.parameters()).device
    source, lengths = sources([reading.source.ids for reading in readings])
    target = [reading.target.ids for reading in readings]
    look_of = partial(forced.looks, model, source.to(device), lengths.to(device), target)
    looks: Looks = {}
    if layers is not None and len(layers) == 1:  # the model need not run further than that
        looks = look_of(f"decoder.{layers[0]}.cross")
    looks = looks or look_of()
    by_layer = {
        int(name[1]): look for key, look in looks.items() if (name := _CROSS.fullmatch(key))
    }
    if not by_layer:
        raise NoAttentionError(
            "this model has no attention to the source, so it cannot align words"
        )
    for layer in layers or ():
        if layer not in by_layer:
            raise ConfigurationError(f"layer {layer}: the decoder has layers 0 to {max(by_layer)}")
    for layer in sorted(by_layer) if layers is None else layers:
        with torch.inference_mode():
            weights = by_layer[layer].weights().float().cpu()
        if not bool(weights.isfinite().all()):
            raise ModelError(
                f"layer {layer} of the decoder: its attention is not finite: the model is damaged, or its "
                "weights are too large"
            )
        for reading, of_sentence in zip(readings, weights, strict=True):
            rows = len(reading.target.ids)
            piecewise = of_sentence[:, : rows + 1, : len(reading.source.ids)]
            reading.written[layer] = _in_words(piecewise[:, :-1], reading)
            reading.read[layer] = _in_words(piecewise[:, 1:], reading)


def _in_words(
    weights: Float[Tensor, "heads target_pieces source_pieces"], reading: WordAttention
) -> Float[Tensor, "heads target source"]:
    sums = _membership(reading.source)
    means = _membership(reading.target)
    means = means / means.sum(0).clamp(min=1)
    return means.T @ weights @ sums


def _membership(words: Words) -> Float[Tensor, "pieces words"]:
    owners = torch.tensor(words.owners, dtype=torch.long)  # -1 for a tag
    return F.one_hot(owners + 1, len(words.words) + 1)[:, 1:].float()
