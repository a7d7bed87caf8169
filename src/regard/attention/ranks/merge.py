"""The answers of all ranks as one, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.recomputing import leaves_of
from regard.attention.parts import Part, added
from regard.attention.ranks.exchange import gather
from regard.attention.shapes import Shape

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Blend(NamedTuple):
    """Numbers of some keys, blended by the softmax over these keys, and its log-normaliser."""

    numbers: Tensor  # (*batch, queries, width)
    log_normaliser: Tensor  # (*batch, queries)


class Inputs(NamedTuple):
    """The tensors that a blend is made of; None for those that are absent."""

    common: list[Tensor | None]  # the same on all ranks, such as queries
    apart: list[Tensor | None]  # those of this rank, such as keys
    parameters: list[Tensor]  # the same on all ranks; they are read where they are


Compute = Callable[[list[Tensor | None], list[Tensor | None]], Blend]


def merge(group: ProcessGroup, compute: Compute, shape: Shape, inputs: Inputs) -> Blend:
    """The blend over the keys of all ranks, on every rank.

        L = ln sum_r e^(L_r)    p_r = e^(L_r - L)    blend = sum_r p_r blend_r

    Gradients are those of one process with all keys, where every rank computes the same loss: of keys
    and values each rank gets those of its own, of what ranks have in common the sum. Ranks exchange one
    message forward and one backward.

    Args:
        group: the ranks.
        compute: the blend of this rank, of tensors in the place of `common` and `apart`.
        shape: of the numbers, (*batch, queries, width); the same on every rank.
        inputs: what the blend is made of.

    Raises:
        RankError: another rank failed.
        ValueError: the blend reads other tensors that have a gradient.
    """
    tensors = [*inputs.common, *inputs.parameters, *inputs.apart]
    numbers, log_normaliser = _Merge.apply(  # type: ignore[no-untyped-call]
        group, compute, shape, inputs, torch.is_grad_enabled(), *tensors
    )
    return Blend(numbers, log_normaliser)


def flat(part: Part, shape: Shape) -> np.ndarray:
    """The numbers of a part in one row, as ranks send them; queries are broadcast to those of the shape."""
    sides = (part.maximum, shape[:-1]), (part.total, shape[:-1]), (part.blend, shape)
    return row_of([side if side.shape == axes else side.expand(axes) for side, axes in sides])


def row_of(tensors: Sequence[Tensor]) -> np.ndarray:
    """The numbers of all tensors in one row, in float64."""
    return np.concatenate([tensor.double().numpy(force=True).ravel() for tensor in tensors])


def flat_size(shape: Shape) -> int:
    """How many numbers that has."""
    return prod(shape[:-1]) * (shape[-1] + 2)


def sum_of(messages: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The maximum, total and blend of all keys, from the parts that the ranks sent; the same bits on each rank."""
    count, rows = prod(shape[:-1]), (len(messages), *shape[:-1])
    maxima = messages[:, :count].reshape(rows)
    totals = messages[:, count : 2 * count].reshape(rows)
    blends = messages[:, 2 * count :].reshape(*rows, shape[-1])
    with np.errstate(all="ignore"):  # infinity gives NaN without a warning, as in torch
        return added(np, maxima, totals, blends)


def _part_of(blend: Blend) -> Part:
    numbers, log_normaliser = blend
    total = (log_normaliser != -torch.inf).double()
    return Part(log_normaliser, total, numbers * total.unsqueeze(-1))


class _Merge(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        group: ProcessGroup,
        compute: Compute,
        shape: Shape,
        inputs: Inputs,
        recorded: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        common, apart = (
            [_alias(tensor) for tensor in side] for side in (inputs.common, inputs.apart)
        )
        leaves = [*common, *inputs.parameters, *apart]
        ours: Blend | None = None

        def blend() -> Blend:
            nonlocal ours
            with torch.set_grad_enabled(recorded):
                numbers, log_normaliser = compute(common, apart)
                ours = Blend(numbers.expand(shape), log_normaliser.expand(shape[:-1]))
            if recorded:
                _check_hidden(ours, leaves)
            return ours

        messages = gather(group, lambda: flat(_part_of(blend()), shape), flat_size(shape))
        total = Part(*map(torch.from_numpy, sum_of(messages, shape)))
        assert ours is not None
        numbers = total.reading().to(ours.numbers)
        log_normaliser = total.log_normaliser().to(ours.log_normaliser)
        ctx.group, ctx.ours, ctx.leaves = group, ours, leaves
        ctx.count = len(common) + len(inputs.parameters)
        ctx.save_for_backward(numbers, log_normaliser)
        return numbers, log_normaliser

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        of_numbers, of_log_normaliser = upstream
        numbers, log_normaliser = ctx.saved_tensors
        ours, needed = ctx.ours, ctx.needs_input_grad[5:]
        logs = ours.log_normaliser.detach()
        shares = torch.where(logs == -torch.inf, 0.0, (logs - log_normaliser).exp())
        weighted = shares.to(of_numbers).unsqueeze(-1) * of_numbers
        difference = (ours.numbers.detach() - numbers).to(weighted)
        to_logs = (weighted * difference).sum(-1).to(logs) + shares * of_log_normaliser
        outputs = [
            (output, gradient.to(output))
            for output, gradient in ((ours.numbers, weighted), (ours.log_normaliser, to_logs))
            if output.requires_grad
        ]
        trained = [leaf for leaf, need in zip(ctx.leaves, needed, strict=True) if need]
        common = sum(needed[: ctx.count])
        gradients: list[Tensor] = []

        def addends() -> list[Tensor]:
            ours = torch.autograd.grad(
                [output for output, _ in outputs],
                trained,
                [gradient for _, gradient in outputs],
                retain_graph=True,  # until the whole graph is let go
                allow_unused=True,
            )
            gradients.extend(
                torch.zeros_like(leaf) if addend is None else addend
                for leaf, addend in zip(trained, ours, strict=True)
            )
            return gradients[:common]

        if common:
            sums = _sums(ctx.group, addends, trained[:common])
            gradients[:common] = sums
        else:
            addends()
        every = iter(gradients)
        return None, None, None, None, None, *(next(every) if need else None for need in needed)


def _sums(
    group: ProcessGroup, addends: Callable[[], list[Tensor]], tensors: list[Tensor]
) -> list[Tensor]:
    """The sums over all ranks of what `addends` computes, which has the shapes and types of `tensors`."""
    sizes = [tensor.numel() for tensor in tensors]

    total = (
        torch.from_numpy(gather(group, lambda: row_of(addends()), sum(sizes))).sum(0).split(sizes)
    )
    return [flat.view(tensor.shape).to(tensor) for flat, tensor in zip(total, tensors, strict=True)]


def _alias(tensor: Tensor | None) -> Tensor | None:
    """A leaf with the same numbers: keys that are made of queries have a gradient of their own."""
    return None if tensor is None else tensor.detach().requires_grad_(tensor.requires_grad)


def _check_hidden(blend: Blend, leaves: Sequence[Tensor | None]) -> None:
    """Refuse functions that hide tensors with gradients, which would get none."""
    identities = {id(leaf) for leaf in leaves}
    read = (leaf for output in blend for leaf in leaves_of(output) or ())
    if any(id(leaf) not in identities for leaf in read):
        raise ValueError(
            "a score or bias reads a tensor with a gradient that it does not name: make it a parameter of"
            " an nn.Module, or use torch.no_grad()"
        )
