"""The weights of a Marian folder in our Transformer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

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
from regard.interop.marian.tokenizer import Words
from regard.translation import weights
from regard.translation.errors import ModelError
from regard.translation.models.building import Undrawn
from regard.translation.models.transformer import Transformer
from regard.translation.text.tokenizer import BOS, PAD

FILE = "model.safetensors"
# A logit that leaves a word no probability.
_NEVER = -30000.0


def read(
    folder: Path, configuration: MarianConfiguration, source: Words, target: Words
) -> Transformer:
    """The model of a folder.

    Raises:
        ModelError: there is no file of weights that is safe to read, or a tensor is missing, unknown, of another
            shape than config.json says, or not finite.
    """
    path = _file(folder)
    tensors = {name: tensor for name, tensor in weights.load(path).items() if name not in POSITIONS}
    settings = configuration.settings()
    width, inner = settings.width, settings.feed_forward
    take = _Taking(path, tensors)
    state = {
        ours: take(theirs, _shape(theirs, width, inner)) for ours, theirs in layer_names(settings)
    }
    words = _words(take, configuration)
    state["target_embedding.weight"] = words["target"][target.rows]
    if settings.tied != "three_way":
        state["source_embedding.weight"] = words["source"][source.rows]
    if settings.tied == "none":
        state["output.weight"] = words["output"][target.rows]
    bias = take.bias(configuration.target_size)[target.rows].clone()
    if target.copied:
        bias[BOS] = _NEVER
    state["output.bias"] = bias
    take.check_all_taken()
    state = reordered(state, halves(width).argsort())
    with Undrawn():
        model = Transformer(settings, len(source.rows), len(target.rows), PAD)
    weights.load_into(model, state, path)
    return model.eval()


class _Taking:
    """Takes tensors by their names, checks them, and knows which were never asked for."""

    def __init__(self, path: Path, tensors: dict[str, Tensor]) -> None:
        self.path, self.tensors = path, tensors
        self.left = set(tensors)

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self.maybe(name, shape)
        if found is None:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        return found

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        self.left.discard(name)
        found = self.tensors.get(name)
        if found is None:
            return None
        if found.shape != shape:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {tuple(found.shape)}, config.json asks for {shape}"
            )
        if not found.is_floating_point():
            raise ModelError(
                f"{self.path}: tensor {name} is {found.dtype}, expected floating point"
            )
        return found.float()

    def alike(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        """What stands under any of these names, which are said to be one tensor."""
        found = {name: t for name in names if (t := self.maybe(name, shape)) is not None}
        if not found:
            raise ModelError(f"{self.path}: tensor {names[0]} is missing")
        first, *others = found
        for other in others:
            if not torch.equal(found[first], found[other]):
                raise ModelError(
                    f"{self.path}: tensors {first} and {other} differ, config.json says that they are tied"
                )
        return found[first]

    def bias(self, size: int) -> Tensor:
        found = self.maybe(OUTPUT_BIAS, (1, size))
        return torch.zeros(size) if found is None else found[0]

    def check_all_taken(self) -> None:
        for name in sorted(self.left):
            raise ModelError(f"{self.path}: tensor {name} has no place in a Marian model")


def _words(take: _Taking, configuration: MarianConfiguration) -> dict[str, Tensor]:
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


def _file(folder: Path) -> Path:
    path = folder / FILE
    if path.is_file():
        return path
    if (folder / f"{FILE}.index.json").exists():
        raise ModelError(
            f"{folder}: its weights are in several parts: save it again with "
            'save_pretrained(..., max_shard_size="100GB")'
        )
    if any((folder / name).exists() for name in ("pytorch_model.bin", "tf_model.h5")):
        raise ModelError(
            f"{folder}: it has no {FILE}; pytorch_model.bin is a pickle, which runs whatever its author wrote, "
            "and is not opened: where you trust it, open it with transformers and save_pretrained it again"
        )
    raise ModelError(f"{folder}: it has no {FILE}")
