"""Blocks of queries that are computed again for their gradients, so that nothing of them is stored.

torch.utils.checkpoint around each block is used where this cannot be. But it keeps small records
between the large blocks, which fragment memory as much as the whole would fill. Here one record
serves all blocks. The caller's functions are
differentiated by autograd itself, so the gradients are exact, also for tensors in their closures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from regard.attention.kernels.zeroed import finite, has_nan
from regard.attention.products import widen
from regard.attention.versions import Reads, Versions


class Span(NamedTuple):
    """A block: some queries, and the keys between which they read, or the positions of several runs of keys."""

    rows: slice
    columns: slice | Tensor

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The positions of its queries and keys, as tensors."""
        rows, columns = (
            side if isinstance(side, Tensor) else torch.arange(side.start, side.stop, device=device)
            for side in self
        )
        return rows, columns


Read = Callable[[Tensor, Tensor, Tensor, Tensor | None, Any], Tensor]  # the last is a span
QUERY, KEY, VALUE, BIAS, OTHERS = range(5)
NAMES = ("query", "key", "value", "bias")
ALL = slice(None)


@dataclass(frozen=True)
class Blocks:
    """A reading in blocks of queries; `read` takes one, with its keys, values and bias.

    The tensors of its methods are the query, key, value and bias, and perhaps others after them.
    """

    read: Read
    spans: Iterable[Any]
    result: int = QUERY  # the side that the reading has as many rows as
    hides: bool = False  # keys that hold NaN or infinity: the gradients are checked for them

    def place(self, side: int, tensor: Tensor, span: Any) -> Any:
        """Where a block's part of the query, key, value or bias lies."""
        if side == QUERY:
            return ..., span.rows, ALL
        if side != BIAS:
            return ..., span.columns, ALL
        rows = span.rows if tensor.shape[-2] > 1 else ALL
        return ..., rows, span.columns if tensor.shape[-1] > 1 else ALL

    def cut(self, side: int, tensor: Any, span: Any) -> Any:
        """A block's part of the query, key, value or bias; all of another tensor."""
        if tensor is None or side >= OTHERS:
            return tensor
        return tensor[self.place(side, tensor, span)]

    def at(self, tensors: Sequence[Any], span: Any) -> Tensor:
        query, key, value, bias = (
            self.cut(i, tensor, span) for i, tensor in enumerate(tensors[:OTHERS])
        )
        return self.read(query, key, value, bias, span)

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        """The reading, of the readings of all blocks."""
        return torch.cat(list(blocks), -2)

    def write(self, tensors: Sequence[Any]) -> Tensor:
        """The reading, written into one tensor block by block."""
        reading: Tensor | None = None
        for span in self.spans:
            block = self.at(tensors, span)
            if reading is None:
                rows = tensors[QUERY].shape[-2]
                reading = block.new_empty(*block.shape[:-2], rows, block.shape[-1])
            reading[..., span.rows, :] = block
        return reading  # type: ignore[return-value]

    def probe(
        self, tensors: Sequence[Any], named: Sequence[tuple[str, Tensor]] = ()
    ) -> tuple[Versions, list[Tensor] | None]:
        """The tensors that a block reads, and the leaves with gradients among those of functions.

        The leaves are None where a block uses a tensor computed before: its history must not be
        walked again. `named` are tensors of the mask, with names for messages.
        """
        since = record_mark()
        detached = [None if tensor is None else tensor.detach() for tensor in tensors]
        query, key = tensors[QUERY], tensors[KEY]
        reads = Reads([*zip(NAMES, detached, strict=True), *named])
        with torch.enable_grad(), Surroundings(query).restore(), reads:
            rows = slice(0, min(1, query.shape[-2]))
            result = self.at(detached, Span(rows, slice(0, key.shape[-2])))
        return reads.versions(), leaves_of(result, since)

    def unless_changed(self, versions: Versions) -> Blocks:
        """The same blocks; each raises a `ChangedError` where others have written to these tensors."""

        def read(*arguments: Any) -> Tensor:
            versions.check_gradients()
            reading = self.read(*arguments)
            versions.leave_out_changed()
            return reading

        return replace(self, read=read)

    def gradients(
        self, tensors: Sequence[Any], needs: Sequence[bool], upstream: Tensor
    ) -> list[Tensor | None]:
        """The gradients of the tensors, by autograd."""

        def gradients(reading: Tensor, leaves: Sequence[Tensor], span: Any) -> list[Tensor | None]:
            return _grad(reading, leaves, needs, self.cut(self.result, upstream, span))

        with torch.enable_grad():
            return self.sums(tensors, needs, gradients)

    def sums(
        self,
        tensors: Sequence[Any],
        needs: Sequence[bool],
        gradients: Callable[[Tensor, Sequence[Tensor], Any], list[Tensor | None]],
        upstream_last: bool = False,
    ) -> list[Tensor | None]:
        """Every block computed again, from leaves of its own, and the sums of its gradients."""
        sides = [min(i, OTHERS) for i in range(len(tensors))]
        if upstream_last:
            sides[-1] = self.result
        totals: list[Any] = [
            widen(torch.zeros_like(tensor, requires_grad=False)) if need else None
            for tensor, need in zip(tensors, needs, strict=True)
        ]
        for span in self.spans:
            leaves: list[Any] = [
                _leaf(self.cut(side, tensor, span), need) if side < OTHERS else tensor
                for side, tensor, need in zip(sides, tensors, needs, strict=True)
            ]
            since = record_mark()
            reading = self.read(leaves[QUERY], leaves[KEY], leaves[VALUE], leaves[BIAS], span)
            check_leaves(reading, since, leaves)
            for i, gradient in enumerate(gradients(reading, leaves, span)):
                if gradient is not None:
                    side = sides[i]
                    place = ... if side >= OTHERS else self.place(side, totals[i], span)
                    with torch.no_grad():
                        totals[i][place] += gradient
        return [
            None if total is None else total.to(tensor.dtype)
            for total, tensor in zip(totals, tensors, strict=True)
        ]


def record_mark() -> int:
    """A number below those of all operations recorded from here on."""
    with torch.enable_grad():
        mark = torch.zeros((), device="cpu", requires_grad=True).exp().grad_fn
    return mark._sequence_nr()  # type: ignore[union-attr]


def leaves_of(result: Tensor, since: int = 0) -> list[Tensor] | None:
    """The leaves with gradients behind a result; None where a tensor computed before `since` is among them."""
    waiting, visited, leaves = [result.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        elif node._sequence_nr() < since:
            return None
        else:
            waiting += [following for following, _ in node.next_functions]
    return leaves


class Surroundings:
    """The state that a block's result depends on beside its arguments: random numbers and autocast."""

    def __init__(self, query: Tensor) -> None:
        self._kind, self._state = query.device.type, torch.get_rng_state()
        # Of a processor there are none, and torch takes 1 ms to say so.
        self._devices, self._states = ([], []) if query.is_cpu else get_device_states(query)
        self._autocast = torch.is_autocast_enabled(self._kind)
        self._dtype = torch.get_autocast_dtype(self._kind)

    @contextmanager
    def restore(self) -> Iterator[None]:
        """Restore the state; at the end, restore the one before it."""
        kind = self._kind if self._devices else "cuda"
        autocast = torch.autocast(self._kind, self._dtype, enabled=self._autocast)
        with torch.random.fork_rng(self._devices, device_type=kind), autocast:
            torch.set_rng_state(self._state)
            if self._devices:
                set_device_states(self._devices, self._states, device_type=kind)
            yield


class Recomputed(torch.autograd.Function):
    """Every block is computed without a record forwards, and with one of its own backwards."""

    @staticmethod
    def forward(ctx: Any, blocks: Blocks, *tensors: Any) -> Tensor:
        ctx.blocks, ctx.surroundings = blocks, Surroundings(tensors[QUERY])
        # Not saved as tensors: under hooks, as of checkpoints, those come back as other objects, and
        # the functions go on to use these. `blocks` sees to it that they do not change.
        ctx.leaves = tensors[OTHERS:]
        ctx.save_for_backward(*tensors[:OTHERS])
        return blocks.write(tensors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        constants = ctx.blocks, ctx.surroundings, ctx.needs_input_grad[1:], upstream[0]
        tensors = *ctx.saved_tensors, *ctx.leaves
        gradients = RecomputedGradients.apply(*constants, *tensors)  # type: ignore[no-untyped-call]
        if ctx.blocks.hides and any(has_nan(side) for side in gradients if side is not None):
            sides = finite(tensors[QUERY]), finite(tensors[KEY]), *tensors[VALUE:]
            gradients = RecomputedGradients.apply(*constants, *sides)  # type: ignore[no-untyped-call]
        return (None, *gradients)


class RecomputedGradients(torch.autograd.Function):
    """The gradients, as a function that has gradients itself."""

    @staticmethod
    def forward(
        ctx: Any,
        blocks: Blocks,
        surroundings: Surroundings,
        needs: Sequence[bool],
        *tensors: Any,
    ) -> Any:
        ctx.blocks, ctx.surroundings, ctx.needs = blocks, surroundings, needs
        upstream, *inputs = tensors
        ctx.leaves = inputs[OTHERS:]
        ctx.save_for_backward(upstream, *inputs[:OTHERS])
        ctx.set_materialize_grads(False)

        with surroundings.restore():
            return tuple(blocks.gradients(inputs, needs, upstream))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        output_gradient, *inputs = ctx.saved_tensors
        inputs += ctx.leaves

        def gradients(reading: Tensor, leaves: Sequence[Tensor], span: Any) -> list[Tensor | None]:
            results = _grad(reading, leaves[:-1], ctx.needs, leaves[-1], record=True)
            total = reading.new_zeros(())
            for i, (gradient, weight) in enumerate(zip(results, upstream, strict=True)):
                if gradient is not None and weight is not None:
                    total = total + (gradient * ctx.blocks.cut(i, weight, span)).sum()
            return _grad(total, leaves, needs, None)

        needs = [*ctx.needs_input_grad[4:], ctx.needs_input_grad[3]]
        with ctx.surroundings.restore(), torch.enable_grad():
            sums = ctx.blocks.sums([*inputs, output_gradient], needs, gradients, upstream_last=True)
        return (None, None, None, sums[-1], *sums[:-1])


def _leaf(tensor: Tensor | None, need: bool) -> Tensor | None:
    return None if tensor is None else tensor.detach().requires_grad_(need)


def _grad(
    result: Tensor,
    leaves: Sequence[Tensor],
    needs: Sequence[bool],
    upstream: Tensor | None,
    record: bool = False,
) -> list[Tensor | None]:
    results: list[Tensor | None] = [None] * len(leaves)
    places = [i for i, need in enumerate(needs) if need]
    if places and result.requires_grad:
        gradients = torch.autograd.grad(
            result, [leaves[i] for i in places], upstream, allow_unused=True, create_graph=record
        )
        for i, gradient in zip(places, gradients, strict=True):
            results[i] = gradient
    return results


def check_leaves(result: Tensor, since: int, leaves_read: Sequence[Any]) -> None:
    """Refuse a result whose gradient would be lost: of a tensor that is not among those read."""
    leaves, names = leaves_of(result, since), {id(tensor) for tensor in leaves_read}
    if leaves is None or any(id(leaf) not in names for leaf in leaves):
        raise RuntimeError(
            "a score, bias, mask or normaliser used a tensor for some queries that it had not used for"
            " the first, so that its gradient would be lost: pin regard.kernel('reference')"
        )
