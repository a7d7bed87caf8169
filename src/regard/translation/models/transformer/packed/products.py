"""Small matrix products in registers: a head's scores and readings."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.loops.compiling import inner, lanes, lanes_inlined
from regard.loops.vectors import everywhere, fused, load, store

ROWS = 4  # rows of a product worked on together
LANES = 16  # float32 numbers in a register


@inner
def multiply(
    left: Any,
    at: Any,
    down: Any,
    along: Any,
    rows: Any,
    inner_length: Any,
    right: Any,
    of: Any,
    width: Any,
    out: Any,
    to: Any,
) -> None:
    """out[r, :] = sum_n left[r, n] right[n, :].

    left[r, n] is at `at + r down + n along`; `right` begins at `of` and `out` at `to`, both with rows of
    `width` numbers, a multiple of LANES; `rows` is rounded up to a multiple of ROWS.
    """
    lanes()
    for row in range(0, rows, ROWS):
        start, end = at + row * down, to + row * width
        column = 0
        while column + 2 * LANES <= width:
            _two(
                left, start, down, along, inner_length, right, of + column, width, out, end + column
            )
            column += 2 * LANES
        if column < width:
            _one(
                left, start, down, along, inner_length, right, of + column, width, out, end + column
            )


@inner
def _two(
    left: Any,
    at: Any,
    down: Any,
    along: Any,
    n: Any,
    right: Any,
    of: Any,
    width: Any,
    out: Any,
    to: Any,
) -> None:
    lanes_inlined()
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = everywhere(out, 0)
    for _ in range(n):
        a, b = load(right, of), load(right, of + LANES)
        x = everywhere(left, left[np.uint64(at)])
        a0, b0 = fused(x, a, a0), fused(x, b, b0)
        x = everywhere(left, left[np.uint64(at + down)])
        a1, b1 = fused(x, a, a1), fused(x, b, b1)
        x = everywhere(left, left[np.uint64(at + 2 * down)])
        a2, b2 = fused(x, a, a2), fused(x, b, b2)
        x = everywhere(left, left[np.uint64(at + 3 * down)])
        a3, b3 = fused(x, a, a3), fused(x, b, b3)
        at += along
        of += width
    _write(out, to, width, a0, a1, a2, a3)
    _write(out, to + LANES, width, b0, b1, b2, b3)


@inner
def _one(
    left: Any,
    at: Any,
    down: Any,
    along: Any,
    n: Any,
    right: Any,
    of: Any,
    width: Any,
    out: Any,
    to: Any,
) -> None:
    lanes_inlined()
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = everywhere(out, 0)
    for _ in range(n // 2):  # two sums a row, so that none waits for the one before
        a, b = load(right, of), load(right, of + width)
        a0 = fused(everywhere(left, left[np.uint64(at)]), a, a0)
        b0 = fused(everywhere(left, left[np.uint64(at + along)]), b, b0)
        a1 = fused(everywhere(left, left[np.uint64(at + down)]), a, a1)
        b1 = fused(everywhere(left, left[np.uint64(at + down + along)]), b, b1)
        a2 = fused(everywhere(left, left[np.uint64(at + 2 * down)]), a, a2)
        b2 = fused(everywhere(left, left[np.uint64(at + 2 * down + along)]), b, b2)
        a3 = fused(everywhere(left, left[np.uint64(at + 3 * down)]), a, a3)
        b3 = fused(everywhere(left, left[np.uint64(at + 3 * down + along)]), b, b3)
        at += 2 * along
        of += 2 * width
    if n % 2:
        a = load(right, of)
        a0 = fused(everywhere(left, left[np.uint64(at)]), a, a0)
        a1 = fused(everywhere(left, left[np.uint64(at + down)]), a, a1)
        a2 = fused(everywhere(left, left[np.uint64(at + 2 * down)]), a, a2)
        a3 = fused(everywhere(left, left[np.uint64(at + 3 * down)]), a, a3)
    _write(out, to, width, a0 + b0, a1 + b1, a2 + b2, a3 + b3)


@inner
def _write(out: Any, to: Any, width: Any, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    lanes_inlined()
    store(out, to, x0)
    store(out, to + width, x1)
    store(out, to + 2 * width, x2)
    store(out, to + 3 * width, x3)


@inner
def take(given: Any, at: Any, stride: Any, rows: Any, count: Any, padded: Any, room: Any) -> None:
    """The rows of one head, `count` numbers each, as rows of `padded`."""
    lanes()
    for row in range(rows):
        start, end = np.uint64(at + row * stride), np.uint64(row * padded)
        for d in range(np.uint64(count)):
            room[end + d] = given[start + d]


@inner
def take_turned(
    given: Any, at: Any, stride: Any, rows: Any, count: Any, padded: Any, room: Any
) -> None:
    """The same, numbers as rows of `padded` columns, one for each row; zeros beyond."""
    lanes()
    for d in range(count):
        end = np.uint64(d * padded)
        for row in range(rows):
            room[end + np.uint64(row)] = given[np.uint64(at + row * stride + d)]
        for row in range(rows, padded):
            room[end + np.uint64(row)] = 0


@inner
def give(room: Any, padded: Any, given: Any, at: Any, stride: Any, rows: Any, count: Any) -> None:
    """Write the rows of one head where they belong."""
    lanes()
    for row in range(rows):
        start, end = np.uint64(at + row * stride), np.uint64(row * padded)
        for d in range(np.uint64(count)):
            given[start + d] = room[end + d]
