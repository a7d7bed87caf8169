"""The equations in blocks of queries: any combination of parts, in memory that grows with lengths."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.recomputing import Blocks, Recomputed, Span
from regard.attention.kernels.reference import read, weigh
from regard.attention.kernels.request import Request
from regard.attention.masks import Mask
from regard.attention.masks.layout import positions_of, reads_of
from regard.attention.normalisers import Hard
from regard.attention.products import widen
from regard.attention.scores import prepare
from regard.attention.scores.score import pairwise
from regard.loops.availability import differentiated, transformed

BLOCK = 1 << 22  # numbers of a block
LOW = 64  # queries of the lowest block that a narrow mask is worth


class Blocked:
    name = "blocked"

    def objection(self, request: Request, value: Tensor) -> str | None:
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        score, key = request.score, widen(request.key)
        if type(request.normaliser) is not Hard:  # which compares the keys as they are
            score, key = prepare(score, key)
        prepared, device = replace(request, score=score), request.frame.device

        def block(
            query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, span: Span
        ) -> Tensor:
            section = prepared.section(*span.positions(device), (query, key, bias))
            return read(request, weigh(section), value)

        tensors = (request.query, key, value, request.bias)
        spans = spans_of(request, BLOCK // max(1, request.row_size))
        hides = request.is_checked and request.has_vectors(request.query, key)
        return in_blocks(request, tensors, Blocks(block, spans, hides=hides))


def in_blocks(request: Request, tensors: Sequence[Any], blocks: Blocks) -> Tensor:
    """The reading of a request, block by block; gradients compute each block again."""
    if transformed() or differentiated():
        return blocks.join([blocks.at(tensors, span) for span in blocks.spans])
    if not torch.is_grad_enabled():
        return blocks.write(tensors)
    named = [("mask", each) for each in request.mask_tensors() or ()]
    versions, leaves = blocks.probe(tensors, named)
    blocks = blocks.unless_changed(versions)
    if leaves is None:
        checkpointed = partial(checkpoint, blocks.at, tensors, use_reentrant=False)
        return blocks.join([checkpointed(span) for span in blocks.spans])
    request.checks_gradients = blocks.hides
    reading: Tensor = Recomputed.apply(blocks, *tensors, *leaves)  # type: ignore[no-untyped-call]
    return reading


def spans_of(request: Request, height: int) -> list[Span]:
    """Blocks of at most `height` queries, or of one, each with the keys that the mask lets them read.

    Where these are several runs, few of the keys between the first and the last, the keys are positions.
    A score or normaliser of the caller's sees every key, as it may depend on all of them.
    """
    queries, keys, mask = request.queries, request.keys, request.mask
    height, narrow = max(1, height), None
    if isinstance(mask, Mask) and queries and keys and is_local(request) and not transformed():
        narrow = mask
        middle, _ = reads_of(mask, range(queries // 2, queries // 2 + 1), request.frame)
        height = min(height, max(LOW, sum(map(len, middle))))
    spans = []
    for start in range(0, max(queries, 1), height):
        rows = range(start, min(start + height, queries))
        runs = [range(keys)]
        if narrow is not None:
            runs = reads_of(narrow, rows, request.frame)[0] or [range(1)]  # at least one key
        begin, end = runs[0].start, runs[-1].stop
        columns: slice | Tensor = slice(begin, end)
        if len(runs) > 1:
            columns = positions_of(runs, request.frame.device)
        spans.append(Span(slice(rows.start, rows.stop), columns))
    return spans


def is_local(request: Request) -> bool:
    """Whether a weight depends only on the keys that its query may read."""
    return pairwise(request.score) is not None and request.normaliser.is_ours
