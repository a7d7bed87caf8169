"""The tensors of a foreign file, and the Transformer that is built from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.interop.huggingface.configuration import named
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.translation import weights
from regard.translation.models.building import SkipInitialisation
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.text.tokenizer import BOS, PAD

FILE = "model.safetensors"
# A logit that leaves a word no probability.
_NEVER = -30000.0


class Tensors:
    """Takes tensors by their names, checks them, and lists those that were not taken."""

    def __init__(self, path: Path, tensors: dict[str, Tensor]) -> None:
        self.path, self.tensors = path, tensors
        self.left = set(tensors)

    @classmethod
    def read(cls, folder: Path, unneeded: Callable[[str], bool]) -> Self:
        """The tensors of a folder, without those for which `unneeded` is True.

        Raises:
            ModelError: there is no file of weights that is safe to read.
        """
        path = _file(folder)
        found = weights.load(path)
        return cls(path, {name: tensor for name, tensor in found.items() if not unneeded(name)})

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of this name.

        Raises:
            ModelError: it is missing, not of this shape, or not finite.
        """
        found = self.maybe(name, shape)
        if found is None:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        return found

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """The same, or None where there is none."""
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
        numbers = found.float()
        if not bool(torch.isfinite(numbers).all()):  # here by the name that it has in the file
            raise ModelError(f"{self.path}: tensor {name} holds numbers that are not finite")
        return numbers

    def alike(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        """The tensor with any of these names; tensors with several of them must be equal."""
        found = {name: t for name in names if (t := self.maybe(name, shape)) is not None}
        if not found:
            raise ModelError(f"{self.path}: tensor {names[0]} is missing")
        first, *others = found
        for other in others:
            if not torch.equal(found[first], found[other]):
                raise ModelError(
                    f"{self.path}: tensors {first} and {other} differ, but config.json ties them"
                )
        return found[first]

    def build(
        self,
        kind: str,
        settings: TransformerSettings,
        state: dict[str, Tensor],
        source: VocabularyMap,
        target: VocabularyMap,
    ) -> Transformer:
        """The Transformer with these weights.

        Raises:
            ModelError: a tensor of the file was never taken, or one does not fit.
        """
        for name in sorted(self.left):
            raise ModelError(f"{self.path}: tensor {named(name)} has no place in a {kind} model")
        if target.copied:
            state["output.bias"][BOS] = _NEVER
        with SkipInitialisation():
            model = Transformer(settings, len(source.rows), len(target.rows), PAD)
        weights.load_into(model, state, self.path)
        return model.eval()


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
