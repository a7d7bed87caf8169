"""Answers that people train with: blocks whose insides are computed again in the backward pass.

Nothing of a block is kept but where it lies, so that memory stays O(queries + keys), and as the
blocks are plain differentiable operations, any score, mask, bias and normaliser will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.looks.blocks import entropy_of

Rows = Callable[[Tensor], Tensor]  # positions of queries -> their weights, or their scores


def entropy(weights: Rows, strips: Iterator[Tensor], into: Tensor) -> Tensor:
    return _filled(into, lambda at: entropy_of(weights(at)), strips)


def log_normaliser(scores: Rows, strips: Iterator[Tensor], into: Tensor) -> Tensor:
    """ln sum_j exp(s_j); of a row with nothing to read -inf, and its gradient 0."""

    def answer(at: Tensor) -> Tensor:
        rows = scores(at)
        nothing = (rows == -torch.inf).all(-1)
        logs = torch.logsumexp(torch.where(nothing.unsqueeze(-1), 0.0, rows), -1)
        return torch.where(nothing, -torch.inf, logs)

    return _filled(into, answer, strips)


def received(weights: Rows, shares: Tensor | None, strips: Iterator[Tensor]) -> Tensor:
    """sum_i w_i p_ij over rows; `shares` are the w of the rows in the order of the strips."""
    start, total = 0, None

    def answer(at: Tensor, own: Tensor | None) -> Tensor:
        rows = weights(at)
        return rows.sum(-2) if own is None else (own.unsqueeze(-1) * rows).sum(-2)

    for strip in strips:
        own = None if shares is None else shares[..., start : start + len(strip)]
        start += len(strip)
        part = _again(answer, strip, own)
        total = part if total is None else total.add_(part)
    return torch.zeros(()) if total is None else total


def _filled(into: Tensor, answer: Rows, strips: Iterator[Tensor]) -> Tensor:
    """A number for every row, written where it belongs: small results that stay among large blocks
    that go would keep the allocator from using that memory again."""
    start = 0
    for strip in strips:
        into[..., start : start + len(strip)] = _again(answer, strip)
        start += len(strip)
    return into


def _again(answer: Callable[..., Tensor], *arguments: Tensor | None) -> Tensor:
    found: Tensor = checkpoint(answer, *arguments, use_reentrant=False, preserve_rng_state=False)
    return found
