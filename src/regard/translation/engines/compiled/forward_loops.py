"""The encoder, and one step of the decoder, each as one compiled call.

Rows are real words only: sentences lie one after the other, without padding. Weights lie in one
flat array; `at` says for each layer where (see `packing`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.loops.compiling import compiled, inner
from regard.translation.engines.compiled.attention_loops import copy, read_cached, read_span
from regard.translation.engines.compiled.products import product
from regard.translation.engines.compiled.row_loops import activate, add, add_bias, embed, norm
from regard.translation.engines.listed_loops import product_listed

# The places of a layer's weights, a bias behind its weight; one that there is not has the place -1.
JOINED, JOINED_BIAS, OUTPUT, OUTPUT_BIAS, INNER, INNER_BIAS, OUTER, OUTER_BIAS = range(8)
QUERY, QUERY_BIAS, SOURCE, SOURCE_BIAS, CROSS, CROSS_BIAS = range(8, 14)
SELF_NORM, CROSS_NORM, FORWARD_NORM = range(14, 17)
PLACES = 17
# Of the places behind the last layer.
LAST_NORM, LOGITS, LOGITS_BIAS = range(3)


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
    spare: Any
    room: Any  # heads x positions
    rounded: Any  # bytes of the rows of a product; None where products are of float32
    factors: Any  # of those rows


# numba knows the type of a plain tuple at once, that of a named one only after asking Python about
# each of its parts, at every call.
@inner
def _shape(t: Any) -> Any:
    return Shape(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7])


@inner
def _workspace(t: Any) -> Any:
    return Workspace(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9])


@inner
def _join(
    workspace: Any,
    given: Any,
    depth: Any,
    rows: Any,
    weights: Any,
    at: Any,
    of: Any,
    by: Any,
    shape: Any,
) -> None:
    """x = x + W given + b, normalised afterwards in post-norm models; W is at `of`, its norm at `by`."""
    width = shape.width
    product(given, rows, depth, weights, at[of], width, workspace, workspace.out)
    add(workspace.x, workspace.out, rows, width, weights, at[of + 1])
    if not shape.before:
        norm(workspace.x, rows, width, weights, at[by], workspace.x)


@inner
def _enter(workspace: Any, rows: Any, weights: Any, at: Any, shape: Any) -> None:
    """h, the input of a sublayer."""
    if shape.before:
        norm(workspace.x, rows, shape.width, weights, at, workspace.h)
    else:
        copy(workspace.h[: rows * shape.width], workspace.x[: rows * shape.width])


@inner
def _forward(workspace: Any, rows: Any, weights: Any, at: Any, shape: Any) -> None:
    """x + W2 f(W1 x + b1) + b2."""
    _enter(workspace, rows, weights, at[FORWARD_NORM], shape)
    product(
        workspace.h, rows, shape.width, weights, at[INNER], shape.inner, workspace, workspace.inner
    )
    activate(workspace.inner, rows, shape.inner, weights, at[INNER_BIAS], shape.kind)
    _join(workspace, workspace.inner, shape.inner, rows, weights, at, OUTER, FORWARD_NORM, shape)


@inner
def _ask(
    workspace: Any, rows: Any, weights: Any, at: Any, of: Any, width: Any, out: Any, shape: Any
) -> None:
    """out = W h + b, W at `of`."""
    product(workspace.h, rows, shape.width, weights, at[of], width, workspace, out)
    add_bias(out, rows, width, weights, at[of + 1])


@inner
def _read(
    workspace: Any,
    apart: Any,
    memory: Any,
    stride: Any,
    keys: Any,
    first: Any,
    last: Any,
    shape: Any,
) -> None:
    """Each row's reading of its span of a memory, see `read_span`; queries lie so far apart."""
    width = shape.width
    for r in range(len(first)):
        query = workspace.joined[r * apart : r * apart + width]
        out = workspace.reading[r * width : r * width + width]
        read_span(
            query,
            memory,
            stride,
            keys,
            first[r],
            last[r],
            shape.heads,
            shape.scale,
            workspace.room,
            out,
        )


@compiled
def encode(
    words: Any,
    places: Any,
    first: Any,
    last: Any,
    table: Any,
    positions: Any,
    weights: Any,
    at: Any,
    end: Any,
    layer_shape: Any,
    workspace_parts: Any,
) -> None:
    """The states of the words, in h; word r reads words first[r] up to last[r].

    Args:
        layer_shape, workspace_parts: a `Shape` and a `Workspace` as plain tuples.
    """
    shape, workspace = _shape(layer_shape), _workspace(workspace_parts)
    rows, width = len(words), shape.width
    embed(words, places, table, shape.factor, positions, workspace.x)
    for layer in range(len(at)):
        own = at[layer]
        _enter(workspace, rows, weights, own[SELF_NORM], shape)
        _ask(workspace, rows, weights, own, JOINED, 3 * width, workspace.joined, shape)
        _read(workspace, 3 * width, workspace.joined, 3 * width, width, first, last, shape)
        _join(workspace, workspace.reading, width, rows, weights, own, OUTPUT, SELF_NORM, shape)
        _forward(workspace, rows, weights, own, shape)
    _enter(workspace, rows, weights, end[LAST_NORM], shape)


@compiled
def project(
    states: Any, rows: Any, weights: Any, at: Any, width: Any, workspace_parts: Any, sources: Any
) -> None:
    """Each layer's keys and values of the source."""
    workspace = _workspace(workspace_parts)
    for layer in range(len(at)):
        product(
            states, rows, width, weights, at[layer, SOURCE], 2 * width, workspace, sources[layer]
        )
        add_bias(sources[layer], rows, 2 * width, weights, at[layer, SOURCE_BIAS])


@compiled
def step(
    words: Any,
    places: Any,
    first: Any,
    last: Any,
    sources: Any,
    said: Any,
    steps: Any,
    came: Any,
    table: Any,
    positions: Any,
    weights: Any,
    at: Any,
    end: Any,
    lists: Any,
    own_list: Any,
    output: Any,
    output_bias: Any,
    layer_shape: Any,
    workspace_parts: Any,
    logits: Any,
) -> None:
    """One word a row: write what it says into `said`, and the logits of the next.

    Args:
        first, last: each row's source in `sources`, keys and values layer by layer.
        said: keys and values by layer, step and row.
        steps: so far, this one included.
        came: the row in which each row's ancestor of a step wrote.
        lists, own_list: the words whose logits are wanted, and which of these lists is each row's; lists of
            no words where all are wanted.
        output, output_bias: of the output layer, as lists need it.
        layer_shape, workspace_parts: a `Shape` and a `Workspace` as plain tuples.
    """
    shape, workspace = _shape(layer_shape), _workspace(workspace_parts)
    rows, width = len(words), shape.width
    embed(words, places, table, shape.factor, positions, workspace.x)
    for layer in range(len(at)):
        own = at[layer]
        _enter(workspace, rows, weights, own[SELF_NORM], shape)
        _ask(workspace, rows, weights, own, JOINED, 3 * width, workspace.joined, shape)
        for r in range(rows):
            start = r * 3 * width
            copy(said[layer, steps - 1, r], workspace.joined[start + width : start + 3 * width])
            came[r, steps - 1] = r
        for r in range(rows):
            start, out = r * 3 * width, workspace.reading[r * width : r * width + width]
            query = workspace.joined[start : start + width]
            read_cached(
                query, said[layer], steps, came[r], shape.heads, shape.scale, workspace.room, out
            )
        _join(workspace, workspace.reading, width, rows, weights, own, OUTPUT, SELF_NORM, shape)
        _enter(workspace, rows, weights, own[CROSS_NORM], shape)
        _ask(workspace, rows, weights, own, QUERY, width, workspace.joined, shape)
        _read(workspace, width, sources[layer], 2 * width, 0, first, last, shape)
        _join(workspace, workspace.reading, width, rows, weights, own, CROSS, CROSS_NORM, shape)
        _forward(workspace, rows, weights, own, shape)
    _enter(workspace, rows, weights, end[LAST_NORM], shape)
    if lists.shape[1]:
        product_listed(workspace.h, rows, width, lists, own_list, output, output_bias, logits)
    else:
        _ask(workspace, rows, weights, end, LOGITS, shape.vocabulary, logits, shape)
