"""A decoder's steps over one memory, against the equations in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.kernels.additive.cpu import step as loops


class Steps:
    """Two steps of three sentences, the last of them empty."""

    def __init__(self, dtype: torch.dtype, keys: int, hidden: int, size: float) -> None:
        torch.manual_seed(0)

        def drawn(*shape: int, scale: float = 1.0) -> Tensor:
            return (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()

        self.queries = drawn(2, 3, hidden, scale=size)
        self.features = drawn(3, keys, hidden, scale=size)
        self.values, self.weight = drawn(3, keys, 5), drawn(hidden)
        self.readable = torch.arange(keys) < torch.tensor([[keys], [1], [0]])
        self.upstream = torch.randn(2, 3, 5, dtype=dtype)

    @property
    def leaves(self) -> list[Tensor]:
        return [self.queries, self.features, self.weight]

    def expected(self) -> tuple[Tensor, ...]:
        features, values = (
            torch.where(self.readable[..., None], given, 0.0).double()
            for given in (self.features, self.values)
        )
        hidden = torch.tanh(self.queries.double()[:, :, None] + features)
        scores = (hidden @ self.weight.double()).masked_fill(~self.readable, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        contexts = torch.einsum("sbk,bkd->sbd", weights, values)
        slopes = torch.autograd.grad(contexts, self.leaves, self.upstream.double())
        return contexts.detach(), *(slope.double() for slope in slopes)

    def made(self) -> tuple[Tensor, ...]:
        (steps, batch, hidden), (_, keys, width) = self.queries.shape, self.values.shape
        padded = -(-hidden // loops.ROUND) * loops.ROUND

        def flat(tensor: Tensor) -> np.ndarray:
            return tensor.detach().reshape(-1).numpy()

        def zeros(*shape: int) -> Tensor:
            return self.values.detach().new_zeros(shape)

        memory = loops.Memory(
            flat(self.features),
            flat(zeros(batch, keys, padded)),
            np.empty(batch, np.uint8),
            flat(self.readable.to(torch.uint8)),
            flat(self.values),
            flat(self.weight),
            *(keys, hidden, padded, width),
            loops.CAPS[self.features.dtype],
        )
        contexts, weights = zeros(steps, batch, width), zeros(steps, batch, keys)
        asked = loops.Steps(flat(self.queries), hidden, 0, flat(weights), flat(contexts))
        made = zeros(steps, batch, hidden), zeros(batch, keys, hidden), zeros(batch, hidden)
        given = loops.Slopes(flat(made[0]), flat(self.upstream), flat(made[1]), flat(made[2]))
        room = flat(zeros(2 * padded))
        loops.remember(memory)
        for k in range(steps):
            loops.read(0, batch, k, memory, asked, room)
        for k in range(steps):
            loops.slopes(0, batch, k, memory, asked, given, room)
        return contexts, *made[:2], made[2].sum(0)


@pytest.mark.parametrize("hidden", [1, 6, 64, 130])
@pytest.mark.parametrize("keys", [1, 5])
@pytest.mark.parametrize("size", [0.5, 12.0, 30.0, 1e4])
def test_steps_keep_the_equations(size: float, keys: int, hidden: int) -> None:
    # Eight lanes add many channels up in longer chains than sixteen do.
    single = 2e-6 if hidden <= 64 else 4e-6
    for dtype, near in ((torch.float32, single), (torch.float64, 1e-13)):
        steps = Steps(dtype, keys, hidden, size)
        for ours, theirs in zip(steps.made(), steps.expected(), strict=True):
            most = max(1.0, theirs.abs().max().item())
            assert (ours.double() - theirs).abs().max().item() <= near * most


def test_keys_nobody_may_read_may_hold_anything() -> None:
    steps = Steps(torch.float64, 5, 6, 1.0)
    expected = steps.made()
    with torch.no_grad():
        steps.features[~steps.readable] = torch.nan
        steps.values[~steps.readable] = torch.inf
    for ours, theirs in zip(steps.made(), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_nan_that_is_read_is_told_of() -> None:
    steps = Steps(torch.float32, 5, 6, 1.0)
    with torch.no_grad():
        steps.features[0, 2, 1] = torch.nan
    contexts = steps.made()[0]
    assert contexts[:, 0].isnan().all()
    assert not contexts[:, 1:].isnan().any()
