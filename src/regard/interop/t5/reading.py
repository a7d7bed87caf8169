"""The weights of a T5 folder in our Transformer."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.interop.huggingface.tensors import Tensors
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.t5.configuration import T5Configuration
from regard.interop.t5.layout import LAST_NORM, OUTPUT, WORDS, is_unused, names
from regard.translation.models.transformer import Transformer
from regard.translation.settings.transformer import Tied


def read(folder: Path, configuration: T5Configuration, words: VocabularyMap) -> Transformer:
    """The model of a folder.

    Raises:
        ModelError: there is no file of weights that is safe to read, or a tensor is missing, unknown, of another
            shape than config.json says, or not finite.
    """
    take = Tensors.read(folder, is_unused)
    state = {ours: take(theirs, shape) for ours, theirs, shape in names(configuration)}
    for name, weight in state.items():
        if name.endswith("query_projection.weight"):
            state[name] = weight * configuration.d_kv**0.5
    if configuration.scales_output:
        state[LAST_NORM] = state[LAST_NORM] * configuration.d_model**-0.5
    size = (configuration.vocab_size, configuration.d_model)
    embedding, output = take.alike(WORDS, size), take.maybe(OUTPUT, size)
    # An output layer in the file is used even where config.json ties it, as transformers does.
    tied: Tied = "three_way" if output is None or torch.equal(embedding, output) else "embeddings"
    state["target_embedding.weight"] = embedding[words.rows]
    if output is not None and tied == "embeddings":
        state["output.weight"] = output[words.rows]
    state["output.bias"] = torch.zeros(len(words.rows))
    return take.build("T5", configuration.settings(tied), state, words, words)
