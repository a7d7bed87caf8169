"""Sharded training: every process holds a shard of every weight, gradient and moment."""

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.translation.models.transformer.model import Transformer
from regard.translation.training.optimiser import optimiser_of
from regard.translation.training.step import Learner


class ShardedLearner(Learner):
    """Shards weights, gradients and moments by FSDP2 (`fully_shard`; Zhao et al. 2023, arXiv 2304.11277).

    The shards of a Transformer layer are gathered when the layer runs, forward and backward, and freed after it. All
    weights outside layers are gathered together, as are those of a recurrent model. In the first process the model
    of the given learner stays whole, for checkpoints and validation.
    """

    def __init__(self, learner: Learner) -> None:
        model, settings, processes = learner.model, learner.settings, learner.processes
        super().__init__(
            copy.deepcopy(model), learner.optimiser, settings, processes, learner.objective.guide
        )
        mesh = init_device_mesh(processes.device.type, (processes.size,))
        layers = (
            [*self.model.encoder, *self.model.decoder]
            if isinstance(self.model, Transformer)
            else []
        )
        for module in (*layers, self.objective):
            fully_shard(module, mesh=mesh)
        for module in self.objective.modules():
            if isinstance(module, FSDPModule):
                # Gradients are summed, not averaged: the loss is already divided by the tokens of all processes.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self._whole, self._saved = model, learner.optimiser
        self.optimiser = optimiser_of(settings, self.objective)
        for parameter, piece in self._pairs():
            if parameter in self._saved.state:
                entries = self._saved.state[parameter].items()
                self.optimiser.state[piece] = {k: _piece(value, piece) for k, value in entries}
        if not processes.is_first:
            self._saved.state.clear()
            for parameter in model.parameters():
                parameter.data = parameter.data.new_empty(0)

    def sum_and_clip(self) -> float:
        """FSDP has summed the gradients of each shard."""
        parameters = self.objective.parameters()
        return float(
            _gathered(nn.utils.clip_grad_norm_(parameters, self.settings.clip or math.inf))
        )

    @torch.no_grad()
    def gather(self) -> None:
        for parameter, piece in self._pairs():
            # All processes take part in gathering; the first one keeps the result.
            entries = {key: _gathered(value) for key, value in self.optimiser.state[piece].items()}
            tensor = _gathered(piece.detach())
            if self.processes.is_first:
                parameter.copy_(tensor)  # raises the version counter; copying to `.data` would not
                self._saved.state[parameter] = {k: value.cpu() for k, value in entries.items()}

    def _pairs(self) -> Iterator[tuple[nn.Parameter, DTensor]]:
        for parameter, piece in zip(self._whole.parameters(), self.model.parameters(), strict=True):
            assert isinstance(piece, DTensor)
            yield parameter, piece


def _gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _piece(value: Tensor, like: DTensor) -> Tensor:
    placed = value.to(like.device)
    if not value.dim():  # the step count of the optimiser
        return placed
    return distribute_tensor(placed, like.device_mesh, like.placements, src_data_rank=None)
