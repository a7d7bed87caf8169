"""Decoder states as codes of 8 bits: their principal components, and the centroids of lists of near ones."""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float, Int, Int8, Int16
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from regard import files, tensor_files

COMPONENTS = 48
FINE = 128  # steps of a query within one of a code
_FARTHEST = 192 * FINE  # of a query, so that it and a code fit into 16 bits
_STEPS = 127  # of a code, on either side of zero
_REACH = 4.0  # standard deviations of the first component that codes reach
_ROUNDS = 6  # of k-means
_ROWS = 4096


@dataclass(frozen=True)
class Space:
    """code = round(P (state - mean) / scale), in 8 bits; states of one list are nearest to its centroid.

    Attributes:
        mean: of the states.
        directions: P, the principal components; zeros where there are fewer than `COMPONENTS`.
        scale: what a step of a code is worth.
        variance: the mean squared distance of a state to the mean, the unit of temperatures.
        centroids: of the lists, in the unit of codes.
    """

    mean: Float[Tensor, " width"]
    directions: Float[Tensor, "width components"]
    scale: Float[Tensor, ""]
    variance: Float[Tensor, ""]
    centroids: Float[Tensor, "lists components"]

    @classmethod
    def fit(cls, states: Float[Tensor, "states width"], lists: int) -> Self:
        """The space of a sample of states; k-means (Lloyd 1982) begins with states drawn by a fixed seed."""
        mean = states.mean(0)
        centred = states - mean
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(states))
        components = vectors.flip(1)[:, :COMPONENTS]
        directions = F.pad(components, (0, COMPONENTS - components.shape[1]))
        scale = (values[-1].clamp(min=1e-12).sqrt() * _REACH / _STEPS).float()
        variance = values.clamp(min=0).sum().clamp(min=1e-12)
        points = centred @ directions / scale
        draw = torch.randperm(len(points), generator=torch.Generator().manual_seed(1))
        centroids = points[draw[:lists]].clone()
        for _ in range(_ROUNDS if lists > 1 else 1):
            nearest = assigned(points, centroids)
            sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
            counts = torch.bincount(nearest, minlength=len(centroids)).unsqueeze(1)
            centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
        return cls(mean, directions, scale, variance, centroids)

    def project(self, states: Float[Tensor, "states width"]) -> Float[Tensor, "states components"]:
        """States in the unit of codes, not rounded."""
        return torch.addmm(self._origin, states.to("cpu", torch.float32), self._projection)

    @cached_property
    def unit(self) -> float:
        """What a squared distance of 1 between codes is, in that of temperatures."""
        return float(self.scale**2 / self.variance)

    @cached_property
    def _projection(self) -> Float[Tensor, "width components"]:
        return self.directions / self.scale

    @cached_property
    def _offsets(self) -> Float[Tensor, " lists"]:
        return _offsets(self.centroids)

    @cached_property
    def _origin(self) -> Float[Tensor, " components"]:
        return -self.mean @ self._projection

    def codes(
        self, points: Float[Tensor, "states components"]
    ) -> Int8[Tensor, "states components"]:
        return points.round().clamp(-_STEPS, _STEPS).to(torch.int8)

    @staticmethod
    def queries(
        points: Float[Tensor, "states components"],
    ) -> Int16[Tensor, "states components"]:
        """States that look for near codes, in fine steps; they reach 1.5 times as far as codes do."""
        return (points * FINE).round_().clamp_(-_FARTHEST, _FARTHEST).to(torch.int16)

    def lists(self, points: Float[Tensor, "states components"]) -> Int[Tensor, " states"]:
        """The list of each state."""
        return assigned(points, self.centroids)

    def closeness(
        self, points: Float[Tensor, "states components"]
    ) -> Float[Tensor, "states lists"]:
        """2 q . c - |c|^2 of each centroid, which falls with the distance."""
        return torch.addmm(self._offsets, points, self.centroids.T, alpha=2)

    def write(self, path: Path) -> None:
        tensors = {field.name: getattr(self, field.name).contiguous() for field in fields(self)}
        files.write(path, save(tensors))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `TensorFileError` or `TypeError` for a file that holds no space."""
        return cls(**tensor_files.read(path)[0])


def assigned(points: Tensor, centroids: Tensor) -> Tensor:
    """The number of the nearest centroid of each point."""
    offsets = _offsets(centroids)
    return torch.cat(
        [torch.addmm(offsets, rows, centroids.T, alpha=2).argmax(1) for rows in points.split(_ROWS)]
    )


def _offsets(centroids: Tensor) -> Tensor:
    """-|c|^2, so that 2 q . c - |c|^2 falls with the distance."""
    return -centroids.square().sum(1)
