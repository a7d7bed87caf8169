"""The encoder, and one step of the decoder, each as one compiled call.

    residual = residual + sublayer(norm(residual))        pre-norm; post-norm models normalise the sum

Rows are real words only: sentences lie one after the other, without padding. Weights lie in one
flat array; `places` says for each layer where (see `weights`). Every row is computed by itself, so that
several threads may each compute some of the rows.
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
    pre_norm: bool
    activation: int
    scale: Any  # of scores, float32
    factor: Any  # of embeddings, float32


class Workspace(NamedTuple):
    """The flat buffers of a pass over some rows."""

    residual: Any
    inputs: Any  # of a sublayer
    projected: Any  # query, key and value of each row
    reading: Any
    sums: Any  # what a sublayer adds
    inner: Any
    tile: Any  # a tile of a product
    scores: Any  # heads x positions


class Pass(NamedTuple):
    """The arguments of every sublayer of a pass."""

    rows: int
    weights: Any
    shape: Shape
    buffers: Workspace


@inner
def _enter(task: Any, norm_at: Any) -> None:
    """inputs = norm(residual) in pre-norm models, or residual."""
    buffers, width = task.buffers, task.shape.width
    if task.shape.pre_norm:
        norm(buffers.residual, task.rows, width, task.weights, norm_at, buffers.inputs)
    else:
        copy(buffers.inputs, 0, buffers.residual, 0, task.rows * width)


@inner
def _project(task: Any, places: Any, weight: Any, width: Any, out: Any) -> None:
    """out = W inputs + b, W and b at two neighbouring places."""
    rows, weights, buffers = task.rows, task.weights, task.buffers
    depth = task.shape.width
    multiply(buffers.inputs, rows, depth, weights, places[weight], width, buffers.tile, out)
    add_bias(out, rows, width, weights, places[weight + 1])


@inner
def _join(task: Any, answer: Any, depth: Any, places: Any, weight: Any, norm_at: Any) -> None:
    """residual = residual + W answer + b, normalised afterwards in post-norm models."""
    rows, width, weights, buffers = task.rows, task.shape.width, task.weights, task.buffers
    multiply(answer, rows, depth, weights, places[weight], width, buffers.tile, buffers.sums)
    add(buffers.residual, 0, buffers.sums, 0, rows * width)
    add_bias(buffers.residual, rows, width, weights, places[weight + 1])
    if not task.shape.pre_norm:
        norm(buffers.residual, rows, width, weights, places[norm_at], buffers.residual)


@inner
def _forward(task: Any, places: Any) -> None:
    """residual + W2 f(W1 inputs + b1) + b2."""
    rows, weights, buffers = task.rows, task.weights, task.buffers
    width, depth = task.shape.width, task.shape.inner
    _enter(task, places[FORWARD_NORM])
    multiply(
        buffers.inputs, rows, width, weights, places[INNER], depth, buffers.tile, buffers.inner
    )
    activate(buffers.inner, rows, depth, weights, places[INNER + 1], task.shape.activation)
    _join(task, buffers.inner, depth, places, OUTER, FORWARD_NORM)


@inner
def _read(
    task: Any, apart: Any, memory: Any, stride: Any, keys: Any, starts: Any, ends: Any
) -> None:
    """Each row's reading of its span of a memory, see `read_span`; queries lie so far apart."""
    width, buffers = task.shape.width, task.buffers
    for row in range(len(starts)):
        query = buffers.projected[row * apart : row * apart + width]
        reading = buffers.reading[row * width : row * width + width]
        read_span(
            *(query, memory, stride, keys, starts[row], ends[row]),
            *(task.shape.heads, task.shape.scale, buffers.scores, reading),
        )


@compiled
def encode(
    words: Any,
    positions: Any,
    starts: Any,
    ends: Any,
    embedding: Any,
    encoder: Any,
    decoder: Any,
    sizes_and_buffers: Any,
    beginning: Any,
    sources: Any,
) -> None:
    """Write each decoder layer's keys and values of some words; word r reads words starts[r] up to ends[r].

    Args:
        embedding: the word vectors, and those of the positions.
        encoder, decoder: the weights of a side, their places, and those behind the last layer.
        sizes_and_buffers: a `Shape` and a `Workspace` as plain tuples: numba knows their types at once, those of
            named ones only after asking Python about each part, at every call.
        beginning: how many words of the batch lie before these.
        sources: the keys and values, layer by layer, of all words of the batch.
    """
    (word_vectors, position_vectors), (weights, places, final) = embedding, encoder
    shape, buffers = Shape(*sizes_and_buffers[0]), Workspace(*sizes_and_buffers[1])
    task = Pass(len(words), weights, shape, buffers)
    width = shape.width
    embed(words, positions, word_vectors, shape.factor, position_vectors, buffers.residual)
    for layer in range(len(places)):
        # Every word reads the words of its sentence; then the feed-forward layer.
        _enter(task, places[layer, SELF_NORM])
        _project(task, places[layer], JOINED, 3 * width, buffers.projected)
        _read(task, 3 * width, buffers.projected, 3 * width, width, starts, ends)
        _join(task, buffers.reading, width, places[layer], OUTPUT, SELF_NORM)
        _forward(task, places[layer])
    _enter(task, final[LAST_NORM])
    # What the decoder reads of these words is the same at each of its steps.
    weights, places, final = decoder
    task = Pass(len(words), weights, shape, buffers)
    for layer in range(len(places)):
        keys_and_values = sources[layer, 2 * width * beginning :]
        _project(task, places[layer], SOURCE, 2 * width, keys_and_values)


@compiled
def step(
    words: Any,
    positions: Any,
    starts: Any,
    ends: Any,
    sources: Any,
    cached: Any,
    embedding: Any,
    decoder: Any,
    sizes_and_buffers: Any,
    beginning: Any,
    logits: Any,
) -> None:
    """One word a row: write its keys and values into the cache, and the logits of the next.

    Args:
        starts, ends: each row's source in `sources`, keys and values layer by layer.
        cached: keys and values by layer, step and row; the steps so far, this one included; and the row in which
            each row's ancestor of a step wrote.
        embedding, decoder, sizes_and_buffers: as of `encode`.
        beginning: how many rows of the batch lie before these.
    """
    (cache, steps, ancestors), (word_vectors, position_vectors) = cached, embedding
    weights, places, final = decoder
    shape, buffers = Shape(*sizes_and_buffers[0]), Workspace(*sizes_and_buffers[1])
    task = Pass(len(words), weights, shape, buffers)
    rows, width, projected, reading = task.rows, shape.width, buffers.projected, buffers.reading
    embed(words, positions, word_vectors, shape.factor, position_vectors, buffers.residual)
    for layer in range(len(places)):
        # Keys and values of this step join those of the row's ancestors, which the row reads.
        _enter(task, places[layer, SELF_NORM])
        _project(task, places[layer], JOINED, 3 * width, projected)
        for row in range(rows):
            slot = beginning + row
            copy(cache[layer, steps - 1, slot], 0, projected, (3 * row + 1) * width, 2 * width)
            ancestors[row, steps - 1] = slot
        for row in range(rows):
            query = projected[3 * row * width : (3 * row + 1) * width]
            read_cached(
                *(query, cache[layer], steps, ancestors[row], shape.heads, shape.scale),
                *(buffers.scores, reading[row * width : row * width + width]),
            )
        _join(task, reading, width, places[layer], OUTPUT, SELF_NORM)
        # The row reads its source; then the feed-forward layer.
        _enter(task, places[layer, CROSS_NORM])
        _project(task, places[layer], QUERY, width, projected)
        _read(task, width, sources[layer], 2 * width, 0, starts, ends)
        _join(task, reading, width, places[layer], CROSS, CROSS_NORM)
        _forward(task, places[layer])
    _enter(task, final[LAST_NORM])
    _project(task, final, LOGITS, shape.vocabulary, logits)
