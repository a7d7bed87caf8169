"""The cost of an attention: parameters, operations and bytes, computed from its sizes."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from regard.attention.heads import Merge, MultiHeadAttention, Norm
from regard.attention.scores import Additive, General, Score, build

ScoreName = Literal["dot", "scaled_dot", "cosine", "general", "additive", "concat"]


@dataclass(frozen=True)
class Cost:
    """Parameters, operations and bytes of one attention over one batch.

    Args:
        parameters: Trained numbers.
        operations: Multiplications and additions of one forward pass, by part; a product of
            (n, m) and (m, p) counts 2 n m p. Normaliser, masks and biases are not counted.
        parameter_bytes: The parameters.
        memory_bytes: The projected keys and values, which a decoder keeps between its steps.
        weights_bytes: The queries x keys weights of all heads, which only some kernels store.
    """

    parameters: int
    operations: dict[str, int]
    parameter_bytes: int
    memory_bytes: int
    weights_bytes: int

    @property
    def total_operations(self) -> int:
        """The operations of all parts."""
        return sum(self.operations.values())


def attention_cost(
    d_query: int,
    heads: int,
    *,
    queries: int,
    keys: int | None = None,
    batch: int = 1,
    d_key: int | None = None,
    d_value: int | None = None,
    d_head: int | None = None,
    d_head_value: int | None = None,
    d_output: int | None = None,
    merge: Merge = "concat",
    bias: bool = False,
    key_heads: int | None = None,
    qk_norm: Norm | None = None,
    score: ScoreName = "scaled_dot",
    d_hidden: int | None = None,
    score_per_head: bool = True,
    number_bytes: int = 4,
) -> Cost:
    """The cost of a `MultiHeadAttention` with the same arguments.

    ``parameters = d_q h d_head + d_k h_k d_head + d_v h_k d_head_value + d_merged d_output`` for h
    heads and h_k key heads, without those of biases, norms and the score; ``d_merged`` is
    ``h d_head_value`` for ``"concat"`` and ``d_head_value`` for ``"sum"``.

    Attention Is All You Need (arXiv 1706.03762, section 3.2.2 and table 1).

    Args:
        d_query, heads, d_key, d_value, d_head, d_head_value, d_output, merge, bias, key_heads,
            qk_norm: Those of `MultiHeadAttention`, with its defaults.
        queries: Number of queries.
        keys: Number of keys; as many as queries by default.
        batch: Number of sequences.
        score: A score's name: ``"scaled_dot"``, ``"general"``, ``"additive"`` and the others.
        d_hidden: Hidden width of the additive score; ``d_head`` by default.
        score_per_head: Whether every head has parameters of its own for the score, as in a
            `MultiHeadAttention` that builds it from its name.
        number_bytes: Bytes of one number: 4 for float32, 2 for the half precisions.

    Raises:
        ValueError: If the widths, heads or lengths are impossible.

    Example:
        >>> cost = attention_cost(512, 8, queries=10)
        >>> cost.parameters, cost.operations["score"]
        (1048576, 102400)
    """
    keys = queries if keys is None else keys
    if min(queries, keys, batch) < 0 or min(number_bytes, 1 if d_hidden is None else d_hidden) < 1:
        raise ValueError("a number of queries, keys or sequences is negative, or a width below 1")
    with torch.device("meta"):  # which has shapes and no numbers
        attention = MultiHeadAttention(
            d_query,
            heads,
            d_key=d_key,
            d_value=d_value,
            d_head=d_head,
            d_head_value=d_head_value,
            d_output=d_output,
            merge=merge,
            bias=bias,
            key_heads=key_heads,
            qk_norm=qk_norm,
        )
        d_head = attention.d_head
        attention.score = build(
            score, d_head, d_head, d_hidden, heads=heads if score_per_head else None
        )
    parameters = sum(parameter.numel() for parameter in attention.parameters())
    operations = {}
    for name, length in (("query", queries), ("key", keys), ("value", keys), ("output", queries)):
        projection: nn.Linear = getattr(attention, f"{name}_projection")
        pairs = projection.in_features * projection.out_features
        operations[f"{name}_projection"] = 2 * batch * length * pairs
    operations["score"] = batch * heads * _score(attention.score, queries, keys, d_head)
    operations["reading"] = 2 * batch * heads * queries * keys * attention.d_head_value
    stored = attention.key_projection.out_features + attention.value_projection.out_features
    return Cost(
        parameters,
        operations,
        parameters * number_bytes,
        batch * keys * stored * number_bytes,
        batch * heads * queries * keys * number_bytes,
    )


def _score(score: Score, queries: int, keys: int, d_head: int) -> int:
    """Operations of one head's scores."""
    if isinstance(score, Additive):  # project both; then add, tanh, multiply and add for each pair
        return (2 * (queries + keys) * d_head + 4 * queries * keys) * score.d_hidden
    dot = 2 * queries * keys * d_head
    # q W k: whichever side has fewer rows goes through W.
    return dot + 2 * min(queries, keys) * d_head**2 if isinstance(score, General) else dot
