"""The counts of links that a text taught, kept for later text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from regard import files, tensor_files
from regard.errors import DataError
from regard.translation.linking.chain import FERTILITIES, LONGEST_JUMP, Direction
from regard.translation.linking.sweeps import Counts

FORMAT = "regard word links, version 1"
_LARGEST_COUNT = 2.0**53


@dataclass(frozen=True)
class Learned:
    """The counts of a chain. Rows of `types` are the numbers of explaining and explained forms."""

    source: list[str]
    target: list[str]
    types: NDArray[np.int32]
    counts: Counts

    @classmethod
    def of(cls, direction: Direction, counts: Counts) -> Learned:
        linked = np.flatnonzero(counts.pairs)
        types = np.stack([numbers[linked] for numbers in direction.type_pairs], 1)
        source, target = direction.sides
        return cls(source.forms, target.forms, types, counts._replace(pairs=counts.pairs[linked]))

    def add_to(self, counts: Counts, direction: Direction) -> None:
        """Add these counts to those of a chain of another text, for the forms that it has."""
        source, target = direction.sides
        sources = _numbers(self.source, source.forms)
        targets = _numbers(self.target, target.forms)
        shared = sources >= 0
        counts.sources[sources[shared]] += self.counts.sources[shared]
        counts.fertility[sources[shared]] += self.counts.fertility[shared]
        counts.jumps[:] += self.counts.jumps
        shared = np.append(targets >= 0, True)  # the last count is the sum
        places = np.append(targets, len(target.forms))[shared]
        counts.unlinked[places] += self.counts.unlinked[shared]
        codes = _codes(sources[self.types[:, 0]], targets[self.types[:, 1]], len(target.forms))
        ours = _codes(*direction.type_pairs, len(target.forms))
        _, places, rows = np.intersect1d(ours, codes, return_indices=True)
        shared = codes[rows] >= 0
        counts.pairs[places[shared]] += self.counts.pairs[rows[shared]]


@dataclass(frozen=True)
class Priors:
    """What each chain learnt, by the name of its form of the words and its direction."""

    chains: dict[str, Learned] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file."""
        tensors: dict[str, torch.Tensor] = {}
        for name, learned in self.chains.items():
            arrays = {
                **learned.counts._asdict(),
                "types": learned.types,
                "source_forms": _bytes(learned.source),
                "target_forms": _bytes(learned.target),
            }
            tensors |= {f"{name}.{key}": torch.from_numpy(array) for key, array in arrays.items()}
        files.write(path, safetensors.torch.save(tensors, {"format": FORMAT}))

    @classmethod
    def load(cls, path: str | os.PathLike[str], names: Sequence[str]) -> Priors:
        """Read what `save` wrote. Raises `DataError` for another or a damaged file."""
        try:
            tensors, metadata = tensor_files.read(path)
        except (OSError, tensor_files.TensorFileError) as fault:
            raise DataError(f"{path}: cannot be read: {fault}") from None
        if metadata.get("format") != FORMAT:
            raise DataError(f"{path}: holds no word links that `regard align --keep` wrote")
        try:
            chains = {name: _learned(name, tensors) for name in names}
        except (KeyError, ValueError, RecursionError) as fault:
            raise DataError(f"{path}: damaged: {fault}") from None
        return cls(chains)


def _learned(name: str, tensors: dict[str, torch.Tensor]) -> Learned:
    def array(key: str, dtype: torch.dtype, *shape: int) -> Any:
        tensor = tensors[f"{name}.{key}"]
        if tensor.dtype != dtype or tensor.shape != shape:
            raise ValueError(
                f"{name}.{key} is {tensor.dtype} of shape {list(tensor.shape)}, expected {dtype} of {list(shape)}"
            )
        return tensor.numpy()

    def forms(key: str) -> list[str]:
        content = array(key, torch.uint8, tensors[f"{name}.{key}"].numel())
        words = json.loads(content.tobytes())
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name}.{key} is no list of words")
        return words

    source, target = forms("source_forms"), forms("target_forms")
    linked = tensors[f"{name}.types"].numel() // 2
    types = array("types", torch.int32, linked, 2)
    if not ((types >= 0) & (types < [len(source), len(target)])).all():
        raise ValueError(f"{name}.types names forms that do not exist")
    counts = Counts(
        pairs=array("pairs", torch.float32, linked),
        sources=array("sources", torch.float32, len(source)),
        unlinked=array("unlinked", torch.float32, len(target) + 1),
        jumps=array("jumps", torch.float64, 2 * LONGEST_JUMP + 1),
        fertility=array("fertility", torch.float32, len(source), FERTILITIES),
    )
    if not all(((each >= 0) & (each < _LARGEST_COUNT)).all() for each in counts):
        raise ValueError(f"{name}: counts below 0, too large or not finite")
    return Learned(source, target, types, counts)


def _numbers(forms: Sequence[str], forms_there: Sequence[str]) -> NDArray[np.int64]:
    """The number of each form in a list, or -1."""
    by_form = {form: number for number, form in enumerate(forms_there)}
    return np.fromiter((by_form.get(form, -1) for form in forms), np.int64)


def _codes(
    sources: NDArray[np.integer], targets: NDArray[np.integer], width: int
) -> NDArray[np.int64]:
    """One number for each pair of forms; -1 where one of them is -1."""
    codes = sources.astype(np.int64) * width + targets
    return np.where((sources >= 0) & (targets >= 0), codes, -1)


def _bytes(forms: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(json.dumps(forms, ensure_ascii=False).encode()), np.uint8)
