"""The weights of a Marian folder in our Transformer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from regard.interop.huggingface.tensors import Tensors
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.marian.configuration import MarianConfiguration
from regard.interop.marian.layout import (
    DECODER_WORDS,
    ENCODER_WORDS,
    OUTPUT,
    OUTPUT_BIAS,
    POSITIONS,
    SHARED,
    halves,
    layer_names,
    reordered,
)
from regard.translation.models.transformer import Transformer


def read(
    folder: Path, configuration: MarianConfiguration, source: VocabularyMap, target: VocabularyMap
) -> Transformer:
    """The model of a folder.

    Raises:
        ModelError: there is no file of weights that is safe to read, or a tensor is missing, unknown, of another
            shape than config.json says, or not finite.
    """
    take = Tensors.read(folder, lambda name: name in POSITIONS)
    settings = configuration.settings()
    width, inner = settings.width, settings.feed_forward
    state = {
        ours: take(theirs, _shape(theirs, width, inner)) for ours, theirs in layer_names(settings)
    }
    words = _words(take, configuration)
    state["target_embedding.weight"] = words["target"][target.rows]
    if not configuration.share_encoder_decoder_embeddings:
        state["source_embedding.weight"] = words["source"][source.rows]
    if not configuration.tie_word_embeddings:
        state["output.weight"] = words["output"][target.rows]
    state["output.bias"] = _output_bias(take, configuration.target_size)[target.rows].clone()
    state = reordered(state, halves(width).argsort())
    return take.build("Marian", settings, state, source, target)


def _output_bias(take: Tensors, size: int) -> Tensor:
    found = take.maybe(OUTPUT_BIAS, (1, size))
    return torch.zeros(size) if found is None else found[0]


def _words(take: Tensors, configuration: MarianConfiguration) -> dict[str, Tensor]:
    width = configuration.d_model
    source, target = (configuration.vocab_size, width), (configuration.target_size, width)
    output = (OUTPUT,) if configuration.tie_word_embeddings else ()
    if configuration.share_encoder_decoder_embeddings:
        shared = take.alike((SHARED, ENCODER_WORDS, DECODER_WORDS, *output), source)
        found = {"source": shared, "target": shared}
    else:
        found = {
            "source": take(ENCODER_WORDS, source),
            "target": take.alike((DECODER_WORDS, *output), target),
        }
    if not output:
        found["output"] = take(OUTPUT, target)
    return found


def _shape(name: str, width: int, inner: int) -> tuple[int, ...]:
    if name.endswith("fc1.weight"):
        return inner, width
    if name.endswith("fc1.bias"):
        return (inner,)
    if name.endswith("fc2.weight"):
        return width, inner
    if name.endswith("proj.weight"):
        return width, width
    return (width,)
