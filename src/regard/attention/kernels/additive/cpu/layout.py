"""The arguments of the loops: the inputs of a call, those of one batch entry, and a worker's buffers."""

from typing import Any, NamedTuple

from regard.loops.compiling import written_out

# The columns of `where`: the index of each array that an entry of the batch reads.
A, C, W, V, SPAN, BIAS, MASK, ASKING, STORED = range(9)


class Entry(NamedTuple):
    """The inputs of one entry of the batch; rows are behind one another, in one axis."""

    a: Any
    c: Any
    weights: Any  # up to a whole number of pairs of groups, with weight 0
    ratios: Any  # divisors of the weights; see groups.py
    turns: Any
    offset: Any  # the sum of all weights
    v: Any
    low: Any
    high: Any
    bias: Any
    mask: Any
    asking: Any
    stored: Any
    powers: Any  # C, strip by strip
    top: Any  # the largest C of each strip and channel
    turned: Any  # the values, strip by strip, only for gradients
    queries: Any
    keys: Any
    hidden: Any
    width: Any
    cap: Any
    factor: Any
    ceiling: Any  # of a product of four t


class Inputs(NamedTuple):
    """The inputs of a call: in `all`, each array has the entries of its own in front."""

    where: Any
    all: Entry


class Tile(NamedTuple):
    """A few queries of an entry: `rows` from `first` on."""

    first: Any
    rows: Any
    powers: Any  # A, and behind them, for gradients, the largest A of each channel
    plain: Any  # a
    scaled: Any  # A g / w


class Span(NamedTuple):
    """Keys of a block, in whole strips: those from `left` to `right`, counted from key `begin`."""

    begin: Any
    left: Any
    right: Any
    strips: Any  # a bit for each strip of the block that the mask lets a query of the tile read


class Buffers(NamedTuple):
    """Where one worker writes a tile; of the last, only gradients need any."""

    powers: Any
    plain: Any
    scaled: Any
    scores: Any
    raw: Any
    peak: Any  # in the backward pass upstream . reading,
    total: Any  # 1 / total
    reading: Any  # and upstream
    kept: Any  # capped scores, only for gradients
    errors: Any
    room: Any
    for_a: Any
    for_w: Any  # float64
    for_keys: Any  # of all blocks of one entry


class Gradients(NamedTuple):
    """The gradients, entries (or a worker's parts of them) first."""

    a: Any
    c: Any
    w: Any  # float64, this worker's
    v: Any
    bias: Any


@written_out
def entry_of(inputs: Any, index: Any) -> Any:
    """The inputs of one entry of the batch."""
    at, p = inputs.where[index], inputs.all
    key, weight, value, span = at[C], at[W], at[V], at[SPAN]
    return Entry(
        p.a[at[A]], p.c[key], p.weights[weight], p.ratios[weight], p.turns[weight],
        p.offset[weight], p.v[value], p.low[span], p.high[span], p.bias[at[BIAS]],
        p.mask[at[MASK]], p.asking[at[ASKING]], p.stored[at[STORED]], p.powers[key], p.top[key],
        p.turned[value], p.queries, p.keys, p.hidden, p.width, p.cap, p.factor, p.ceiling,
    )  # fmt: skip
