"""The scores of a tile: dot products, or additive scores.

    score = w . tanh(a + c) = sum of w - 2 sum_h w_h r_h,   r_h = 1 / (1 + e^(2 a_h) e^(2 c_h))

A softmax does not see what all scores have in common, so the sum of w is added only where there is a cap. The
exponentials are taken once for each query and key (`prepare_features`), and two channels share a reciprocal, of which
a multiprocessor has an eighth as many units as of multiplications:

    1 / t = u / (t u),   1 / u = t / (t u),   t = 1 + e^(2 a_h) e^(2 c_h), u the same of the next channel

Where a feature is beyond LIMIT, t u might be infinite: tiles with such features take e^(2 (a + c)) for each pair.
Features lie (hidden, length), so that neighbours in a row of a tile are neighbours in memory. A thread of a tile has
one query of all keys, or one key of all queries, so that no sum over the others crosses threads.
"""

import os

import torch
import triton
import triton.language as tl

from regard.attention.kernels.triton.tiles import LOG2E, load_rows

LIMIT = tl.constexpr(21.4)  # e^LIMIT is below 2^31, so that t u is below 2^125
LOG2E_REST = tl.constexpr(1.925963033500011e-08)  # what float32 leaves of log2 e
TOGETHER = tl.constexpr(16)  # positions that share a mark
DEEP = tl.constexpr(32)  # channels that are read at a time
# One instruction, to one unit in the last place, in place of the five of a division.
RECIPROCALS = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


@triton.jit
def prepare_features(features, doubled, beyond, length, hidden, stored_length, stored_hidden):
    """2 a and e^(2 a) of one side, (entries, 2, hidden, length), with zeros up to the stored sizes.

    Program (block of positions, with a mark whether a feature is beyond the limit, of one entry).
    """
    blocks = stored_length // TOGETHER
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    rows = block * TOGETHER + tl.arange(0, TOGETHER)
    features += entry * length * hidden
    doubled += entry * 2 * stored_hidden * stored_length
    largest = tl.zeros((TOGETHER, DEEP), tl.int32)
    for start in range(0, stored_hidden, DEEP):
        channels = start + tl.arange(0, DEEP)
        twice = load_rows(features, rows, length, channels, hidden) * 2.0
        largest = tl.maximum(largest, tl.where(tl.abs(twice) <= LIMIT, 0, 1))  # 1 for NaN
        place = channels[None, :] * stored_length + rows[:, None]
        inside = (channels < stored_hidden)[None, :] & (rows < stored_length)[:, None]
        tl.store(doubled + place, twice, mask=inside)
        exponent = twice * LOG2E
        remainder = tl.fma(twice, LOG2E, -exponent) + twice * LOG2E_REST
        powers = tl.exp2(exponent)
        powers += powers * (remainder * 0.6931471805599453)
        tl.store(doubled + stored_hidden * stored_length + place, powers, mask=inside)
    tl.store(beyond + entry * blocks + block, tl.max(tl.max(largest, 1), 0))


@triton.jit
def is_beyond(marks, start, length, SIZE: tl.constexpr):
    """Whether a feature of the SIZE positions from `start` on is beyond the limit."""
    blocks = start // TOGETHER + tl.arange(0, SIZE // TOGETHER)
    return tl.max(tl.load(marks + blocks, mask=blocks < length // TOGETHER, other=0), 0) > 0


@triton.jit
def reciprocal(x):
    if RECIPROCALS:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def channel(side, h, stored_length, at):
    """A channel of some positions; blocks of positions end where the stored ones do."""
    return tl.load(side + h * stored_length + at)


@triton.jit
def apart(inner, outer):
    """r, (inner, outer), of one channel, from 2 a and 2 c."""
    return reciprocal(1.0 + tl.exp2((inner[:, None] + outer[None, :]) * LOG2E))


@triton.jit
def additive_tile(
    outer, inner, w, outer_at, inner_at, outer_stored, inner_stored, stored_hidden, direct
):
    """- 2 sum of w r, (inner, outer)."""
    total = tl.zeros((inner_at.shape[0], outer_at.shape[0]), tl.float32)
    if direct:
        for h in range(stored_hidden):
            inner_channel = channel(inner, h, inner_stored, inner_at)
            outer_channel = channel(outer, h, outer_stored, outer_at)
            total += tl.load(w + h) * apart(inner_channel, outer_channel)
    else:
        inner += stored_hidden * inner_stored
        outer += stored_hidden * outer_stored
        for h in range(0, stored_hidden, 2):
            t = 1.0 + (
                channel(inner, h, inner_stored, inner_at)[:, None]
                * channel(outer, h, outer_stored, outer_at)[None, :]
            )
            u = 1.0 + (
                channel(inner, h + 1, inner_stored, inner_at)[:, None]
                * channel(outer, h + 1, outer_stored, outer_at)[None, :]
            )
            total += (tl.load(w + h) * u + tl.load(w + h + 1) * t) * reciprocal(t * u)
    return -2.0 * total


@triton.jit
def capped_tile(scores, w, stored_hidden, cap):
    """cap tanh(score / cap)."""
    total = 0.0
    for h in range(stored_hidden):
        total += tl.load(w + h)
    return cap * (1.0 - 2.0 / (1.0 + tl.exp2((scores + total) / cap * (2.0 * LOG2E))))
