"""The formulas of attentions by their kind, of the models of our settings, and of stacks such as BERT and GPT."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.costs.parts import (
    ADDED,
    Part,
    Parts,
    attention,
    learned,
    linear,
    matrix,
    scored,
    scores_and_values,
    times,
)
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.transformer import TransformerSettings


@dataclass(frozen=True)
class Heads:
    """One attention.

    Args:
        kind: "single-head": softmax(Q K^T / sqrt(d)) V, without projections; "multi-head" and "summed-heads":
            a `MultiHeadAttention` with merge="concat" or "sum".
        width: of queries and keys.
        heads: how many; 1 for a single head.
        value_width: of values; that of queries and keys by default.
        learned_keys: learned keys of each head, and as many values, beside those that are passed.
    """

    kind: Literal["single-head", "multi-head", "summed-heads"]
    width: int
    heads: int = 1
    value_width: int | None = None
    learned_keys: int = 0

    @property
    def d_value(self) -> int:
        return self.width if self.value_width is None else self.value_width

    @property
    def options(self) -> dict[str, Any]:
        """Those of a `MultiHeadAttention`, besides width and heads."""
        merge = "sum" if self.kind == "summed-heads" else "concat"
        return {"d_value": self.d_value, "merge": merge}


def attended(sizes: Heads, _words: tuple[int, int], queries: int, keys: int) -> Parts:
    """One attention of `queries` over `keys`, which are kept."""
    width, d_value, more = sizes.width, sizes.d_value, sizes.learned_keys
    if sizes.kind == "single-head":
        cache = keys * (width + d_value)
        read = scores_and_values(queries, keys + more, 1, width, d_value, cache=cache)
        return [*learned(more, width, d_value), *read]
    options: dict[str, Any] = {**sizes.options, "learned_keys": more}
    return attention(queries, keys, width, sizes.heads, cached=True, **options)


def transformer(
    settings: TransformerSettings, words: tuple[int, int], queries: int, keys: int
) -> Parts:
    """An encoder over `keys` source tokens, a decoder over `queries` target tokens.

    Vaswani et al. 2017, arXiv 1706.03762, with the options of `[model]`. `words` are the sizes of the
    vocabularies, of the source and of the target.
    """
    width, tied = settings.width, settings.tied
    options: dict[str, Any] = {"d_head": settings.head_width, "bias": settings.attention_bias}
    norm = Part(ADDED, width * (2 if settings.normalisation == "layer" else 1))

    def reading(rows: int, columns: int, cached: bool) -> Parts:
        return [norm, *attention(rows, columns, width, settings.heads, **options, cached=cached)]

    def fed(rows: int) -> Parts:
        bias = settings.feed_forward_bias
        return [norm, *feed_forward(width, settings.feed_forward, rows, bias, settings.gated)]

    encoder = reading(keys, keys, False) + fed(keys)
    decoder = reading(queries, queries, True) + reading(queries, keys, True) + fed(queries)
    return [
        embeddings(words, width, tied in ("embeddings", "three_way")),
        Part("embeddings", settings.position_parameters),
        *times(settings.encoder_layers, encoder),
        *times(settings.decoder_layers, decoder),
        *times(2 * (settings.norm == "pre"), [norm]),
        *output(words[1], width, queries, tied in ("target", "three_way"), settings.output_bias),
    ]


def recurrent(
    settings: RecurrentSettings, words: tuple[int, int], queries: int, keys: int
) -> Parts:
    """An encoder over `keys` source tokens, a decoder over `queries` target tokens, with attention or without.

    Bahdanau et al. 2015, arXiv 1409.0473, and Luong et al. 2015, arXiv 1508.04025, as `[model]` has them.
    """
    state, memory, word = settings.decoder_width, settings.memory_width, settings.embedding_width
    gates = 4 if settings.cell == "lstm" else 3
    feeding = settings.attention == "luong" and settings.input_feeding
    feed = {"bahdanau": memory, "luong": state * feeding, "none": 0}[settings.attention]

    def cell(d_input: int, d_state: int, rows: int) -> Parts:
        ends = (d_input, d_state)
        return [p for d in ends for p in linear("recurrence", d, gates * d_state, rows, bias=True)]

    costs = [embeddings(words, word, settings.tied == "three_way")]
    for layer in range(settings.encoder_layers):
        cell_costs = cell(memory if layer else word, settings.encoder_width, keys)
        costs += times(2 if settings.bidirectional else 1, cell_costs)
    if settings.bridge == "linear":
        bridge = linear("recurrence", memory, state, 1, bias=True)
        costs += times(settings.decoder_layers * (2 if settings.cell == "lstm" else 1), bridge)
    for layer in range(settings.decoder_layers):
        costs += cell(state if layer else word, state, queries)
    costs += [matrix("recurrence", feed, gates * state, queries)]
    if settings.attention != "none":
        costs += _crossed(settings, queries, keys, queries if feed else 1)
    hidden = settings.hidden_width
    if settings.attention == "bahdanau":
        costs += linear("output layer", state + memory + word, hidden, queries, bias=True)
    else:
        read_width = memory + state if settings.attention == "luong" else 0
        costs += [matrix("output layer", read_width, state, queries)]
        costs += [matrix("output layer", state, hidden, queries)] if hidden != state else []
    return [*costs, *output(words[1], hidden, queries, settings.tied != "none", True)]


def _crossed(settings: RecurrentSettings, queries: int, keys: int, calls: int) -> Parts:
    state, memory, heads = settings.decoder_width, settings.memory_width, settings.heads
    hidden = settings.attention_width
    if heads > 1:
        sizes: dict[str, Any] = {
            "d_key": memory,
            "d_output": memory,
            "d_hidden": hidden,
            "calls": calls,
        }
        return attention(queries, keys, state, heads, score=settings.score, cached=True, **sizes)
    matrices, width = scored(settings.score, queries, keys, state, memory, hidden, prepared=True)
    return [*matrices, *scores_and_values(queries, keys, 1, width, memory, cache=keys * memory)]


@dataclass(frozen=True)
class Stack:
    """Embeddings, blocks of self-attention and feed-forward layer, and an output layer or none.

    Args:
        layers: blocks.
        width: of the embeddings and of every block.
        heads: of a block.
        positions: learned vectors of positions.
        segments: learned vectors of segments.
        causal: whether it writes, so that the output layer shares the weights of the embeddings and
            keys and values are kept; otherwise it reads, and has a norm after the embeddings.
        pooler: whether the first state goes through one more layer.
    """

    layers: int
    width: int
    heads: int
    positions: int
    segments: int = 0
    causal: bool = True
    pooler: bool = False


def stack(sizes: Stack, words: tuple[int, int], queries: int, keys: int) -> Parts:
    """`queries` tokens through a stack; `keys` counts them and those before them, which are in the cache."""
    width, norm = sizes.width, Part(ADDED, 2 * sizes.width)
    block = [
        *attention(
            *(queries, keys, width, sizes.heads), bias=True, new_keys=queries, cached=sizes.causal
        ),
        *feed_forward(width, 4 * width, queries, True),
        *times(2, [norm]),
    ]
    return [
        Part("embeddings", width * (words[1] + sizes.positions + sizes.segments)),
        *times(sizes.layers, block),
        norm,
        *(linear("output layer", width, width, 1, bias=True) if sizes.pooler else []),
        *(output(words[1], width, queries, True, False) if sizes.causal else []),
    ]


def embeddings(words: tuple[int, int], width: int, shared: bool) -> Part:
    """The word vectors of both languages; looking one up multiplies nothing."""
    return Part("embeddings", width * (words[1] if shared else sum(words)))


def feed_forward(width: int, inner: int, rows: int, bias: bool, gated: bool = False) -> Parts:
    """W2 f(W1 x), with a gate W3 x or without."""
    hidden = linear("feed-forward", width, inner, rows, bias=bias)
    outer_layer = linear("feed-forward", inner, width, rows, bias=bias)
    return times(2 if gated else 1, hidden) + outer_layer


def output(words: int, width: int, rows: int, tied: bool, bias: bool) -> Parts:
    """From hidden vectors to logits; tied, its weights are counted with the embeddings."""
    weight, added = linear("output layer", width, words, rows, bias=bias)
    return [replace(weight, parameters=0) if tied else weight, added]


Built = TransformerSettings | RecurrentSettings | Stack | Heads
# Each takes the sizes, those of the vocabularies, and the numbers of queries and of keys.
FORMULAS: dict[type, Callable[[Any, tuple[int, int], int, int], Parts]] = {
    TransformerSettings: transformer,
    RecurrentSettings: recurrent,
    Stack: stack,
    Heads: attended,
}
