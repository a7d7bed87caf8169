"""Tensors of a foreign file, taken by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.interop.huggingface.configuration import named
from regard.translation import weights

FILE = "model.safetensors"
# A logit that leaves a word no probability.
NEVER = -30000.0


class Tensors:
    """Takes tensors by their names, checks them, and knows which were never asked for."""

    def __init__(self, path: Path, tensors: dict[str, Tensor]) -> None:
        self.path, self.tensors = path, tensors
        self.left = set(tensors)

    @classmethod
    def read(cls, folder: Path, unneeded: Callable[[str], bool]) -> Self:
        """The tensors of a folder, but for those that can be worked out.

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

    def check_all_taken(self, kind: str) -> None:
        """Raises `ModelError` naming a tensor that was never asked for."""
        for name in sorted(self.left):
            raise ModelError(f"{self.path}: tensor {named(name)} has no place in a {kind} model")


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
