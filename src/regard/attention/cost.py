"""The cost of an attention: parameters, operations and bytes, computed from its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from regard.attention.heads import Merge, Norm, head_widths
from regard.attention.names import unknown

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
    width = head_widths(
        d_query, heads, d_key, d_value, d_head, d_head_value, d_output, merge, key_heads
    )
    keys = queries if keys is None else keys
    hidden = width["d_head"] if d_hidden is None else d_hidden
    if min(queries, keys, batch) < 0 or min(hidden, number_bytes) < 1:
        raise ValueError("a number of queries, keys or sequences is negative, or a width below 1")
    if score not in (names := get_args(ScoreName)):
        raise unknown("score", score, names)
    key_heads, d_head, d_head_value = (width[k] for k in ("key_heads", "d_head", "d_head_value"))
    projections = {
        "query_projection": (queries, width["d_query"], heads * d_head),
        "key_projection": (keys, width["d_key"], key_heads * d_head),
        "value_projection": (keys, width["d_value"], key_heads * d_head_value),
        "output_projection": (queries, width["d_merged"], width["d_output"]),
    }
    parameters = sum((d_in + bias) * d_out for _, d_in, d_out in projections.values())
    parameters += {None: 0, "rms": 2 * d_head, "layer": 4 * d_head}[qk_norm]
    kind = "additive" if score == "concat" else score
    own = {"general": d_head * d_head, "additive": hidden * (2 * d_head + 1)}.get(kind, 0)
    parameters += own * (heads if score_per_head else 1)
    operations = {
        name: 2 * batch * length * d_in * d_out
        for name, (length, d_in, d_out) in projections.items()
    }
    operations["score"] = batch * heads * _score(kind, queries, keys, d_head, hidden)
    operations["reading"] = 2 * batch * heads * queries * keys * d_head_value
    return Cost(
        parameters,
        operations,
        parameters * number_bytes,
        batch * keys * key_heads * (d_head + d_head_value) * number_bytes,
        batch * heads * queries * keys * number_bytes,
    )


def _score(score: str, queries: int, keys: int, d_head: int, hidden: int) -> int:
    """Operations of one head's scores."""
    if score == "additive":  # project both; then add, tanh, multiply and add for each pair
        return 2 * (queries + keys) * d_head * hidden + 4 * queries * keys * hidden
    dot = 2 * queries * keys * d_head
    # q W k: whichever side has fewer rows goes through W.
    return dot if score != "general" else dot + 2 * min(queries, keys) * d_head * d_head
