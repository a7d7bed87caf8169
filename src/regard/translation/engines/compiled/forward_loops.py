"""The encoder, and one step of the decoder, each as one compiled call.

Rows are real words only: sentences lie one after the other, without padding. Weights lie in one
flat array; `at` says for each layer where (see `weights`).
"""

from typing import Any, NamedTuple

from regard.loops.compiling import compiled, inner
from regard.loops.rows import add, copy
from regard.translation.engines.compiled.products import multiply
from regard.translation.engines.compiled.row_loops import (
    activate,
    add_bias,
    embed,
    norm,
    read_cached,
    read_span,
)

# The places of a layer's weights, a bias behind its weight; one that there is not has the place -1.
JOINED, OUTPUT, INNER, OUTER, QUERY, SOURCE, CROSS = range(0, 14, 2)
SELF_NORM, CROSS_NORM, FORWARD_NORM = range(14, 17)
PLACES = 17
# Of the places behind the last layer.
LAST_NORM, LOGITS = 0, 1


class Shape(NamedTuple):
    """The sizes and options of a layer."""

    width: int
    inner: int
    heads: int
    vocabulary: int
    before: bool  # pre-norm
    kind: int  # of activation
    scale: Any  # of scores, float32
    factor: Any  # of embeddings, float32


class Workspace(NamedTuple):
    """The flat buffers of a pass."""

    x: Any
    h: Any
    joined: Any
    reading: Any
    out: Any
    inner: Any
    tile: Any  # a tile of a product
    scores: Any  # heads x positions


class Pass(NamedTuple):
    """The arguments of every sublayer of a pass."""

    rows: int
    weights: Any
    shape: Shape
    workspace: Workspace


@inner
def _enter(p: Any, norm_at: Any) -> None:
    """h, the input of a sublayer."""
    if p.shape.before:
        norm(p.workspace.x, p.rows, p.shape.width, p.weights, norm_at, p.workspace.h)
    else:
        copy(p.workspace.h, 0, p.workspace.x, 0, p.rows * p.shape.width)


@inner
def _project(p: Any, at: Any, of: Any, width: Any, out: Any) -> None:
    """out = W h + b, W at `of`."""
    multiply(p.workspace.h, p.rows, p.shape.width, p.weights, at[of], width, p.workspace.tile, out)
    add_bias(out, p.rows, width, p.weights, at[of + 1])


@inner
def _join(p: Any, given: Any, depth: Any, at: Any, of: Any, by: Any) -> None:
    """x = x + W given + b, normalised afterwards in post-norm models; W is at `of`, its norm at `by`."""
    x, out, rows, width, weights = p.workspace.x, p.workspace.out, p.rows, p.shape.width, p.weights
    multiply(given, rows, depth, weights, at[of], width, p.workspace.tile, out)
    add(x, 0, out, 0, rows * width)
    add_bias(x, rows, width, weights, at[of + 1])
    if not p.shape.before:
        norm(x, rows, width, weights, at[by], x)


@inner
def _forward(p: Any, at: Any) -> None:
    """x + W2 f(W1 x + b1) + b2."""
    inner, depth = p.workspace.inner, p.shape.inner
    _enter(p, at[FORWARD_NORM])
    multiply(
        p.workspace.h, p.rows, p.shape.width, p.weights, at[INNER], depth, p.workspace.tile, inner
    )
    activate(inner, p.rows, depth, p.weights, at[INNER + 1], p.shape.kind)
    _join(p, inner, depth, at, OUTER, FORWARD_NORM)


@inner
def _read(p: Any, apart: Any, memory: Any, stride: Any, keys: Any, first: Any, last: Any) -> None:
    """Each row's reading of its span of a memory, see `read_span`; queries lie so far apart."""
    width, heads, scale, scores = p.shape.width, p.shape.heads, p.shape.scale, p.workspace.scores
    for r in range(len(first)):
        query = p.workspace.joined[r * apart : r * apart + width]
        out = p.workspace.reading[r * width : r * width + width]
        read_span(query, memory, stride, keys, first[r], last[r], heads, scale, scores, out)


@compiled
def encode(
    words: Any, places: Any, first: Any, last: Any, embedding: Any, packed: Any, parts: Any
) -> None:
    """The states of the words, in h; word r reads words first[r] up to last[r].

    Args:
        embedding: the word vectors, and those of the positions.
        packed: the weights, their places, and those behind the last layer.
        parts: a `Shape` and a `Workspace` as plain tuples: numba knows their types at once, those of named ones only
            after asking Python about each part, at every call.
    """
    (table, positions), (weights, at, end) = embedding, packed
    p = Pass(len(words), weights, Shape(*parts[0]), Workspace(*parts[1]))
    width, joined = p.shape.width, p.workspace.joined
    embed(words, places, table, p.shape.factor, positions, p.workspace.x)
    for layer in range(len(at)):
        own = at[layer]
        _enter(p, own[SELF_NORM])
        _project(p, own, JOINED, 3 * width, joined)
        _read(p, 3 * width, joined, 3 * width, width, first, last)
        _join(p, p.workspace.reading, width, own, OUTPUT, SELF_NORM)
        _forward(p, own)
    _enter(p, end[LAST_NORM])


@compiled
def project(rows: Any, packed: Any, parts: Any, sources: Any) -> None:
    """Each decoder layer's keys and values of the source, whose states are in h."""
    weights, at, _ = packed
    p = Pass(rows, weights, Shape(*parts[0]), Workspace(*parts[1]))
    for layer in range(len(at)):
        _project(p, at[layer], SOURCE, 2 * p.shape.width, sources[layer])


@compiled
def step(
    words: Any,
    places: Any,
    first: Any,
    last: Any,
    sources: Any,
    cached: Any,
    embedding: Any,
    packed: Any,
    parts: Any,
    logits: Any,
) -> None:
    """One word a row: write its keys and values into the cache, and the logits of the next.

    Args:
        first, last: each row's source in `sources`, keys and values layer by layer.
        cached: keys and values by layer, step and row; the steps so far, this one included; and the row in which
            each row's ancestor of a step wrote.
        embedding, packed, parts: as of `encode`.
    """
    (cache, steps, came), (table, positions), (weights, at, end) = cached, embedding, packed
    p = Pass(len(words), weights, Shape(*parts[0]), Workspace(*parts[1]))
    rows, width, heads, scale = p.rows, p.shape.width, p.shape.heads, p.shape.scale
    joined, reading, scores = p.workspace.joined, p.workspace.reading, p.workspace.scores
    embed(words, places, table, p.shape.factor, positions, p.workspace.x)
    for layer in range(len(at)):
        own = at[layer]
        _enter(p, own[SELF_NORM])
        _project(p, own, JOINED, 3 * width, joined)
        for r in range(rows):
            copy(cache[layer, steps - 1, r], 0, joined, (3 * r + 1) * width, 2 * width)
            came[r, steps - 1] = r
        for r in range(rows):
            query = joined[3 * r * width : (3 * r + 1) * width]
            out = reading[r * width : r * width + width]
            read_cached(query, cache[layer], steps, came[r], heads, scale, scores, out)
        _join(p, reading, width, own, OUTPUT, SELF_NORM)
        _enter(p, own[CROSS_NORM])
        _project(p, own, QUERY, width, joined)
        _read(p, width, sources[layer], 2 * width, 0, first, last)
        _join(p, reading, width, own, CROSS, CROSS_NORM)
        _forward(p, own)
    _enter(p, end[LAST_NORM])
    _project(p, end, LOGITS, p.shape.vocabulary, logits)
