"""What a cell does number by number, forwards and backwards, as compiled loops.

The cells' equations are in `regard.translation.models.recurrent.cells`. x is what comes from the
input and the feed, u what comes from the state, each before its nonlinearity. Forwards, x becomes
what the nonlinearities made of it: the way back needs that. Backwards, the gradient of the states
after a step is complete when the step's turn comes; what belongs to the states before it is added
to `onto`, for the first `carried` rows (the others began here).

Arrays are flat, a row after the other; tuples hold the state, and an LSTM's memory behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, lanes
from regard.loops.exponentials import exponential


@inner
def sigmoid(x: Any, one: Any) -> Any:
    return one / (one + exponential(-x))


@inner
def hyperbolic(x: Any, one: Any) -> Any:
    """tanh(x) = 1 - 2 / (1 + e^(2x)), as exact as 1 is."""
    r = one / (one + exponential(x + x))
    return one - (r + r)


@compiled
def gru(
    first: Any, last: Any, x: Any, u: Any, stride: Any, befores: Any, afters: Any, width: Any
) -> None:
    """r, z = sigmoid(x + u), n = tanh(x_n + r u_n), s' = n + z (s - n); x becomes (r, z, n)."""
    for row in range(first, last):
        gru_row(x, row * 3 * width, u, row * stride, befores[0], afters[0], row * width, width)


@inner
def gru_row(x: Any, at: Any, u: Any, to: Any, before: Any, after: Any, own: Any, n: Any) -> None:
    lanes()
    one, n = x.dtype.type(1), np.uint64(n)
    r, i, s = np.uint64(at), np.uint64(to), np.uint64(own)
    z, c, j, k = r + n, r + n + n, i + n, i + n + n
    for d in range(n):
        reset, keep = sigmoid(x[r + d] + u[i + d], one), sigmoid(x[z + d] + u[j + d], one)
        candidate = hyperbolic(x[c + d] + reset * u[k + d], one)
        after[s + d] = candidate + keep * (before[s + d] - candidate)
        x[r + d], x[z + d], x[c + d] = reset, keep, candidate


@compiled
def gru_slopes(
    first: Any,
    last: Any,
    x: Any,
    u: Any,
    stride: Any,
    befores: Any,
    afters: Any,
    upstream: Any,
    dx: Any,
    du: Any,
    onto: Any,
    shift: Any,
    carried: Any,
    width: Any,
) -> None:
    """With g the gradient of s': ds = z g, and

    dx_n = g (1 - z) (1 - n^2), dx_z = g (s - n) z (1 - z), dx_r = dx_n u_n r (1 - r);
    du is dx, but for du_n = r dx_n.
    """
    for row in range(first, last):
        at, to, own = row * 3 * width, row * stride, row * width
        gru_row_slopes(x, at, u, to, befores[0], upstream[0], own, dx, du, width)
        if row < carried:
            add_product(onto[0], own + shift, x, at + width, upstream[0], own, width)


@inner
def gru_row_slopes(
    x: Any,
    at: Any,
    u: Any,
    to: Any,
    before: Any,
    upstream: Any,
    own: Any,
    dx: Any,
    du: Any,
    n: Any,
) -> None:
    lanes()
    one, n = x.dtype.type(1), np.uint64(n)
    r, i, s = np.uint64(at), np.uint64(to), np.uint64(own)
    z, c, j, k = r + n, r + n + n, i + n, i + n + n
    for d in range(n):
        reset, keep, candidate, g = x[r + d], x[z + d], x[c + d], upstream[s + d]
        dn = g * (one - keep) * (one - candidate * candidate)
        dz = g * (before[s + d] - candidate) * keep * (one - keep)
        dr = dn * u[k + d] * reset * (one - reset)
        dx[r + d], dx[z + d], dx[c + d] = dr, dz, dn
        du[i + d], du[j + d], du[k + d] = dr, dz, dn * reset


@inner
def add_product(total: Any, to: Any, left: Any, at: Any, right: Any, own: Any, n: Any) -> None:
    lanes()
    i, j, s = np.uint64(to), np.uint64(at), np.uint64(own)
    for d in range(np.uint64(n)):
        total[i + d] += left[j + d] * right[s + d]


@compiled
def lstm(
    first: Any, last: Any, x: Any, u: Any, stride: Any, befores: Any, afters: Any, width: Any
) -> None:
    """i, f, o = sigmoid(x + u), g = tanh(x + u), c' = f c + i g, s' = o tanh(c'); x: (i, f, g, o)."""
    for row in range(first, last):
        at, to, own = row * 4 * width, row * stride, row * width
        lstm_row(x, at, u, to, befores[1], afters[0], afters[1], own, width)


@inner
def lstm_row(
    x: Any, at: Any, u: Any, to: Any, before: Any, after: Any, memory: Any, own: Any, n: Any
) -> None:
    lanes()
    one, n = x.dtype.type(1), np.uint64(n)
    i, a, s = np.uint64(at), np.uint64(to), np.uint64(own)
    f, g, o = i + n, i + n + n, i + n + n + n
    b, c, e = a + n, a + n + n, a + n + n + n
    for d in range(n):
        enter, forget = sigmoid(x[i + d] + u[a + d], one), sigmoid(x[f + d] + u[b + d], one)
        candidate, leave = hyperbolic(x[g + d] + u[c + d], one), sigmoid(x[o + d] + u[e + d], one)
        kept = forget * before[s + d] + enter * candidate
        after[s + d], memory[s + d] = leave * hyperbolic(kept, one), kept
        x[i + d], x[f + d], x[g + d], x[o + d] = enter, forget, candidate, leave


@compiled
def lstm_slopes(
    first: Any,
    last: Any,
    x: Any,
    u: Any,
    stride: Any,
    befores: Any,
    afters: Any,
    upstream: Any,
    dx: Any,
    du: Any,
    onto: Any,
    shift: Any,
    carried: Any,
    width: Any,
) -> None:
    """With G the gradient of s' and m = dc' + G o (1 - tanh(c')^2) the whole one of c': dc = f m, and

    di = m g i (1 - i), df = m c f (1 - f), dg = m i (1 - g^2), do = G tanh(c') o (1 - o).
    """
    for row in range(first, last):
        at, to, own = row * 4 * width, row * stride, row * width
        lstm_row_slopes(
            x, at, befores[1], afters[1], upstream[0], upstream[1], own, dx, du, to, width
        )
        if row < carried:
            add_product(onto[1], own + shift, x, at + width, upstream[1], own, width)


@inner
def lstm_row_slopes(
    x: Any,
    at: Any,
    before: Any,
    memory: Any,
    upstream: Any,
    whole: Any,
    own: Any,
    dx: Any,
    du: Any,
    to: Any,
    n: Any,
) -> None:
    lanes()
    one, n = x.dtype.type(1), np.uint64(n)
    i, a, s = np.uint64(at), np.uint64(to), np.uint64(own)
    f, g, o = i + n, i + n + n, i + n + n + n
    b, c, e = a + n, a + n + n, a + n + n + n
    for d in range(n):
        enter, forget, candidate, leave = x[i + d], x[f + d], x[g + d], x[o + d]
        shown, slope = hyperbolic(memory[s + d], one), upstream[s + d]
        m = whole[s + d] + slope * leave * (one - shown * shown)
        di, df = m * candidate * enter * (one - enter), m * before[s + d] * forget * (one - forget)
        dg, do = m * enter * (one - candidate * candidate), slope * shown * leave * (one - leave)
        whole[s + d] = m
        dx[i + d], dx[f + d], dx[g + d], dx[o + d] = di, df, dg, do
        du[a + d], du[b + d], du[c + d], du[e + d] = di, df, dg, do


@dataclass(frozen=True)
class CellLoops:
    """How many gates a cell has, of how many parts its state is, and its loops."""

    gates: int
    parts: int
    forward: Any
    backward: Any


LOOPS = {"gru": CellLoops(3, 1, gru, gru_slopes), "lstm": CellLoops(4, 2, lstm, lstm_slopes)}
