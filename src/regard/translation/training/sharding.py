"""Sharded training: every process holds a shard of every weight, gradient and moment."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer import Transformer
from regard.translation.settings import TrainingSettings
from regard.translation.training.guiding import Guide
from regard.translation.training.processes import Processes
from regard.translation.training.step import Learner, optimiser_of


class ShardedLearner(Learner):
    """Shards weights, gradients and moments by FSDP2 (`fully_shard`; Zhao et al. 2023, arXiv 2304.11277).

    The shards of a Transformer layer are gathered when the layer runs, forward and backward, and freed after it. All
    weights outside layers are gathered together, as are those of a recurrent model. In the first process the given
    model stays whole, for checkpoints and validation.
    """

    def __init__(
        self,
        model: TranslationModel,
        optimiser: torch.optim.Optimizer,
        settings: TrainingSettings,
        processes: Processes,
        guide: Guide | None = None,
    ) -> None:
        super().__init__(copy.deepcopy(model), optimiser, settings, processes, guide)
        mesh = init_device_mesh(processes.device.type, (processes.size,))
        for module in (*_layers(self.model), self.objective):
            fully_shard(module, mesh=mesh)
        for module in self.objective.modules():
            if isinstance(module, FSDPModule):
                # Gradients are summed, not averaged: the loss is already divided by the tokens of all processes.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.whole, self._saved = model, optimiser
        self.optimiser = optimiser_of(settings, self.objective)
        self._take_moments()
        if not processes.first:
            optimiser.state.clear()
            for parameter in model.parameters():
                parameter.data = parameter.data.new_empty(0)

    def sum_gradients(self) -> None:
        """Nothing is left to do: FSDP has summed the gradients of each shard."""

    def clip(self, limit: float) -> float:
        return float(_whole(nn.utils.clip_grad_norm_(self.objective.parameters(), limit)))

    @torch.no_grad()
    def gather(self) -> None:
        for own, piece in self._pairs():
            # All processes take part in gathering; the first one keeps the result.
            entries = {key: _whole(value) for key, value in self.optimiser.state[piece].items()}
            tensor = _whole(piece.detach())
            if self.processes.first:
                own.copy_(tensor)  # raises the version counter; copying to `.data` would not
                self._saved.state[own] = {k: value.cpu() for k, value in entries.items()}

    def _take_moments(self) -> None:
        for own, piece in self._pairs():
            if own in self._saved.state:
                entries = self._saved.state[own].items()
                self.optimiser.state[piece] = {k: _piece(value, piece) for k, value in entries}

    def _pairs(self) -> Iterator[tuple[nn.Parameter, DTensor]]:
        for own, piece in zip(self.whole.parameters(), self.model.parameters(), strict=True):
            assert isinstance(piece, DTensor)
            yield own, piece


def _layers(model: TranslationModel) -> list[nn.Module]:
    return [*model.encoder, *model.decoder] if isinstance(model, Transformer) else []


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _piece(value: Tensor, like: DTensor) -> Tensor:
    if not value.dim():  # the step count of the optimiser
        return value.to(like.device)
    placed = value.to(like.device)
    return distribute_tensor(placed, like.device_mesh, like.placements, src_data_rank=None)
