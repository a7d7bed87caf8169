"""The residual sum with its dropout and the next layer norm, as one operation with its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.attention.blocks.dropout import draws
from regard.loops.threads import run, split
from regard.translation.models.transformer.packed import residual_loops as loops


def add_and_norm(
    x: Float[Tensor, "words width"],
    f: Float[Tensor, "words width"],
    bias: Float[Tensor, " width"] | None,
    rate: float,
    norm: nn.LayerNorm,
) -> tuple[Float[Tensor, "words width"], Float[Tensor, "words width"]]:
    """x' = x + dropout(f + bias), and the layer norm of x'."""
    dropped = draws(x.shape, rate) if rate else None
    found: tuple[Tensor, Tensor] = _AddAndNorm.apply(  # type: ignore[no-untyped-call]
        *(x, f, bias, norm.weight, norm.bias, norm.eps), dropped
    )
    return found


class _AddAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        f: Tensor,
        bias: Tensor | None,
        gain: Tensor,
        shift: Tensor,
        epsilon: float,
        dropped: tuple[Tensor, int] | None,
    ) -> tuple[Tensor, Tensor]:
        rows, width = x.shape
        total, normed, moments = torch.empty_like(x), torch.empty_like(x), x.new_empty(2 * rows)
        added = x.new_zeros(width) if bias is None else bias
        ctx.chance = _chance(dropped, rows * width)
        norm = loops.Norm(_flat(gain), _flat(shift), np.float32(epsilon))
        given = (_flat(x), _flat(f), _flat(added), ctx.chance, norm)
        made = (_flat(total), _flat(normed), _flat(moments))
        run([partial(loops.forward, *part, width, *given, *made) for part in shares(rows)])
        ctx.save_for_backward(total, moments, gain)
        ctx.biased = bias is not None
        ctx.set_materialize_grads(False)
        return total, normed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, for_total: Tensor | None, for_normed: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        total, moments, gain = ctx.saved_tensors
        rows, width = total.shape
        if for_normed is None:
            for_normed = torch.zeros_like(total)
        for_x, for_f = torch.empty_like(total), torch.empty_like(total)
        parts = shares(rows)
        sums = total.new_zeros(3, len(parts), width)
        given = (_flat(total), _flat(moments), ctx.chance, _flat(gain), int(for_total is not None))
        slopes = (_flat(for_normed if for_total is None else for_total), _flat(for_normed))
        made = (_flat(for_x), _flat(for_f))

        def work(worker: int, part: tuple[int, int]) -> None:
            own = (_flat(each) for each in sums[:, worker])
            loops.backward(*part, width, *given, *slopes, *made, *own)

        run([partial(work, worker, part) for worker, part in enumerate(parts)])
        for_gain, for_shift, for_bias = sums.sum(1)
        return for_x, for_f, for_bias if ctx.biased else None, for_gain, for_shift, None, None


def _chance(dropped: tuple[Tensor, int] | None, count: int) -> loops.Chance:
    if dropped is None:
        return loops.Chance(np.zeros(count, np.uint8), np.uint8(0), np.float32(1))
    bytes_, least = dropped
    return loops.Chance(bytes_.numpy(), np.uint8(least), np.float32(256 / (256 - least)))


def shares(rows: int) -> list[tuple[int, int]]:
    """Rows for each thread."""
    return split(rows, torch.get_num_threads())


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().view(-1).numpy()
