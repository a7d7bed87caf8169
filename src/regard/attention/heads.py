"""Attention with several heads: project, read, merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend, read
from regard.attention.looks import Look
from regard.attention.masks.mask import Both, Either, Given
from regard.attention.memory.heads import HeadMemory
from regard.attention.positions import Rotary
from regard.attention.shapes import ShapeError

__all__ = ["HeadMemory", "MultiHeadAttention"]

Merge = Literal["concat", "sum"]


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each over its own projection of the same sequence.

    ``output = W_O merge_i(attend(W_Q,i query, W_K,i key, W_V,i value))``

    Attention Is All You Need (arXiv 1706.03762, section 3.2.2). With ``merge="concat"`` the heads
    share the width and are laid side by side; with ``merge="sum"`` each head reads values of the
    full width and the readings are added.

    Args:
        d_query: Width of the queries.
        heads: Number of heads.
        d_key: Width of the keys before projection; that of the queries by default.
        d_value: Width of the values before projection; that of the keys by default.
        d_head: Width of one head's queries and keys; ``d_query // heads`` by default.
        d_head_value: Width of one head's values; by default ``d_head`` for ``"concat"`` and the
            full ``d_value`` for ``"sum"``.
        d_output: Width of the output; that of the queries by default.
        merge: ``"concat"`` or ``"sum"``.
        score: How a head scores queries against keys; scaled dot product by default. A score with
            parameters is built for ``d_head``, with ``heads=`` for one set of them per head.
        normaliser: Scores to weights; softmax by default.
        bias: Whether the four projections have a bias.
        dropout: Rate at which weights are dropped while training.
        rotary: Turns projected queries and keys by their places, which then need no other sign of
            them; see `regard.positions.rotate`. Values stay.

    Raises:
        ValueError: If a size is below one, ``heads`` does not divide ``d_query`` while ``d_head``
            is left out, or ``merge`` or ``dropout`` is out of range.
        ShapeError: If ``rotary`` cannot turn heads of this width, in pairs.

    Example:
        >>> import torch
        >>> attention = MultiHeadAttention(8, heads=2)
        >>> attention(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])
        >>> sum(parameter.numel() for parameter in attention.parameters())
        256
    """

    def __init__(
        self,
        d_query: int,
        heads: int,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        d_head: int | None = None,
        d_head_value: int | None = None,
        d_output: int | None = None,
        merge: Merge = "concat",
        score: Callable[..., Any] | None = None,
        normaliser: Callable[..., Any] | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        widths = head_widths(d_query, heads, d_key, d_value, d_head, d_head_value, d_output, merge)
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is {dropout}: pass a rate from 0 up to, but not, 1")
        self.heads = heads
        self.merge = merge
        self.dropout = dropout
        self.d_query, self.d_key, self.d_value = d_query, widths["d_key"], widths["d_value"]
        self.d_head, self.d_head_value = widths["d_head"], widths["d_head_value"]
        self.d_output = widths["d_output"]
        merged = self.d_head_value * (heads if merge == "concat" else 1)
        self.query_projection = nn.Linear(d_query, heads * self.d_head, bias=bias)
        self.key_projection = nn.Linear(self.d_key, heads * self.d_head, bias=bias)
        self.value_projection = nn.Linear(self.d_value, heads * self.d_head_value, bias=bias)
        self.output_projection = nn.Linear(merged, self.d_output, bias=bias)
        self.score = score
        self.normaliser = normaliser
        self.rotary = rotary
        if rotary is not None:
            rotary.check(self.d_head)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projections anew: Glorot uniform weights, biases of zero."""
        for projection in (
            self.query_projection,
            self.key_projection,
            self.value_projection,
            self.output_projection,
        ):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"] | None = None,
        value: Float[Tensor, "*#batch keys d_value"] | None = None,
        *,
        mask: Any = None,
        bias: Float[Tensor, "..."] | None = None,
        memory: HeadMemory | None = None,
        start: int | None = None,
    ) -> Float[Tensor, "*batch queries d_output"]:
        """Read ``value`` where ``key`` answers ``query``.

        Args:
            query: What is looked for.
            key: What is compared with it; the queries themselves by default (self-attention).
            value: What is read; the keys by default.
            mask: Who may read what, True = may be read: a mask of `regard.masks`, or a boolean
                tensor ``(queries, keys)``, ``(*batch, queries, keys)`` for every head alike, or
                ``(*batch, heads, queries, keys)``.
            bias: Added to the scores, of the same shapes.
            memory: Keys and values from `remember`, read in place of ``key`` and ``value``.
            start: The place of the first query among the keys, for ``rotary``. By default queries
                begin where keys do, and end where a memory does: its last steps are asking.

        Returns:
            The merged readings, projected to ``d_output``.

        Raises:
            ShapeError: If a width or a number of keys does not fit.
            ValueError: If both ``key`` or ``value`` and ``memory`` are given.
        """
        projected = self._project(query, key, value, memory, start)
        reading = attend(*projected, **self._how(query, mask, bias))
        return self._merge(reading)

    def read(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"] | None = None,
        value: Float[Tensor, "*#batch keys d_value"] | None = None,
        *,
        mask: Any = None,
        bias: Float[Tensor, "..."] | None = None,
        memory: HeadMemory | None = None,
        start: int | None = None,
    ) -> tuple[Float[Tensor, "*batch queries d_output"], Look]:
        """The output of `forward`, and the look over ``(*batch, heads, queries, keys)``."""
        projected = self._project(query, key, value, memory, start)
        reading, look = read(*projected, **self._how(query, mask, bias))
        return self._merge(reading), look

    def remember(
        self,
        key: Float[Tensor, "*batch keys d_key"],
        value: Float[Tensor, "*batch keys d_value"] | None = None,
        *,
        memory: HeadMemory | None = None,
    ) -> HeadMemory:
        """Project keys and values once, to be read many times.

        Args:
            key: The new steps.
            value: Their values; the keys by default.
            memory: An earlier memory that the new steps are appended to, in place. Their
                places, for ``rotary``, are those after its own.

        Returns:
            ``memory``, grown, or a new one.
        """
        first = 0 if memory is None else len(memory)
        keys, values = self._project_memory(key, key if value is None else value, first)
        if memory is None:
            return HeadMemory(keys, values)
        memory.write(keys, values)
        return memory

    def _project(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        memory: HeadMemory | None,
        start: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        _fits("query", query, self.d_query)
        queries = self._split(self.query_projection(query), self.d_head)
        if memory is None:
            key = query if key is None else key
            keys, values = self._project_memory(key, key if value is None else value)
        elif key is not None or value is not None:
            raise ValueError("got a memory and a key or value as well: pass one or the other")
        else:
            keys, values = memory.keys, memory.values
        if start is None:
            start = 0 if memory is None else max(0, len(memory) - query.shape[-2])
        return self._turn(queries, start), keys, values

    def _project_memory(self, key: Tensor, value: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        _fits("key", key, self.d_key)
        _fits("value", value, self.d_value)
        keys = self._split(self.key_projection(key), self.d_head)
        return self._turn(keys, first), self._split(self.value_projection(value), self.d_head_value)

    def _turn(self, projected: Tensor, start: int) -> Tensor:
        return projected if self.rotary is None else self.rotary(projected, start)

    def _split(self, projected: Tensor, width: int) -> Tensor:
        return projected.view(*projected.shape[:-1], self.heads, width).transpose(-2, -3)

    def _merge(self, reading: Tensor) -> Tensor:
        if self.merge == "sum":
            merged = reading.sum(-3)
        else:
            merged = reading.transpose(-2, -3).flatten(-2)
        output: Tensor = self.output_projection(merged)
        return output

    def _how(self, query: Tensor, mask: Any, bias: Tensor | None) -> dict[str, Any]:
        return {
            "score": self.score,
            "bias": _over_heads(bias, query.dim()),
            "mask": _over_heads(mask, query.dim()),
            "normaliser": self.normaliser,
            "dropout": self.dropout if self.training else 0.0,
        }

    def extra_repr(self) -> str:
        turning = "" if self.rotary is None else f", rotary={self.rotary}"
        return f"heads={self.heads}, d_head={self.d_head}, merge={self.merge!r}{turning}"


def head_widths(
    d_query: int,
    heads: int,
    d_key: int | None = None,
    d_value: int | None = None,
    d_head: int | None = None,
    d_head_value: int | None = None,
    d_output: int | None = None,
    merge: str = "concat",
) -> dict[str, int]:
    """Every width of a `MultiHeadAttention`, those left out filled in, or a ValueError."""
    if merge not in ("concat", "sum"):
        raise ValueError(f'merge is {merge!r}: pass "concat" or "sum"')
    if heads < 1:
        raise ValueError(f"heads is {heads}: pass at least 1")
    if d_head is None and d_query % heads:
        raise ValueError(
            f"{heads} heads do not divide the query width {d_query}: "
            "pass a number of heads that does, or d_head="
        )
    d_head = d_query // heads if d_head is None else d_head
    d_key = d_query if d_key is None else d_key
    d_value = d_key if d_value is None else d_value
    if d_head_value is None:
        d_head_value = d_head if merge == "concat" else d_value
    widths = {
        "d_query": d_query,
        "d_key": d_key,
        "d_value": d_value,
        "d_head": d_head,
        "d_head_value": d_head_value,
        "d_output": d_query if d_output is None else d_output,
    }
    for name, width in widths.items():
        if width < 1:
            raise ValueError(f"{name} is {width}: pass a width of at least 1")
    return widths


def _over_heads(what: Any, query_axes: int) -> Any:
    """A tensor with batch axes but none for the heads gets one of size 1, in joined masks too."""
    if isinstance(what, Tensor):
        return what.unsqueeze(-3) if 3 <= what.dim() <= query_axes else what
    if isinstance(what, Given):
        return Given(_over_heads(what.tensor, query_axes))
    if isinstance(what, Both | Either):
        left, right = _over_heads(what.left, query_axes), _over_heads(what.right, query_axes)
        return type(what)(left, right)
    return what


def _fits(name: str, sequence: Tensor, width: int) -> None:
    if sequence.dim() < 2 or sequence.shape[-1] != width:
        raise ShapeError(
            f"{name} has shape {tuple(sequence.shape)}: pass [..., length, {width}], "
            "the width that this attention was built for"
        )
