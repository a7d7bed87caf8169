"""Attention with several heads: project, read, merge."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend, read
from regard.attention.by_name import not_callable, unknown
from regard.attention.caches import HeadMemory, Place
from regard.attention.constants import flag, rate, whole
from regard.attention.kernels.request import check_tensor
from regard.attention.layer_calls import call
from regard.attention.looks import Look
from regard.attention.masks import Mask, causal
from regard.attention.masks.mask import Complement, Given, Joined
from regard.attention.masks.positions import Band
from regard.attention.normalisers import NormaliserLike, as_normaliser
from regard.attention.positions import Rotary
from regard.attention.scores import PairScore, ScoreLike, build
from regard.attention.shapes import Shape, ShapeError
from regard.attention.torch_names import ATTENTION, PLACES, READING, answers

__all__ = ["HeadMemory", "MultiHeadAttention", "new_norm"]

Merge = Literal["concat", "sum"]
Norm = Literal["layer", "rms"]
CAUSAL_END = causal(align="end")


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
        score: How a head scores queries against keys; scaled dot product by default. A name is
            built: ``"dot"``, ``"cosine"``; ``"general"`` and ``"additive"`` with parameters of
            every head's own. A score with parameters that you build takes ``d_head`` as its widths,
            and ``heads=`` for one set of them per head, a pair (key_heads, group) of grouped ones.
        normaliser: Scores to weights, or a name of one; softmax by default.
        bias: Whether the four projections have a bias.
        dropout: Rate at which weights are dropped while training.
        rotary: Turns projected queries and keys by their places, which then need no other sign of
            them; see `regard.positions.rotate`. Values stay.
        key_heads: Heads of keys and values; as many as ``heads`` by default. With fewer, each is
            read by a group of ``heads / key_heads`` neighbours, and a `HeadMemory` is that much
            smaller: grouped heads (Ainslie et al. 2023, arXiv 2305.13245), one for all with 1.
        qk_norm: ``"rms"`` or ``"layer"`` normalises every head's queries and keys, before they are
            turned, with weights that heads share (Dehghani et al. 2023, arXiv 2302.05442, section 2).

    Raises:
        TypeError: If an argument has a wrong type.
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

    @answers(ATTENTION | PLACES)
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
        score: ScoreLike | None = None,
        normaliser: NormaliserLike | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        key_heads: int | None = None,
        qk_norm: Norm | None = None,
    ) -> None:
        super().__init__()
        if merge not in ("concat", "sum"):
            raise ValueError(f'merge is {merge!r}: pass "concat" or "sum"')
        d_query, heads = whole("d_query", d_query), whole("heads", heads)
        if d_head is None and d_query % heads:
            raise ValueError(
                f"{heads} heads do not divide the query width {d_query}: "
                "pass a number of heads that does, or d_head="
            )
        bias = flag("bias", bias)
        self.heads = heads
        self.key_heads = heads if key_heads is None else whole("key_heads", key_heads, 0)
        if self.key_heads < 1 or heads % self.key_heads:
            raise ValueError(f"key_heads is {key_heads}: pass a divisor of {heads}, the heads")
        self.group = heads // self.key_heads
        self.merge = merge
        self.dropout = rate("dropout", dropout)
        self.d_query = d_query
        self.d_key = d_query if d_key is None else d_key
        self.d_value = self.d_key if d_value is None else d_value
        self.d_head = d_query // heads if d_head is None else d_head
        if d_head_value is None:
            d_head_value = self.d_head if merge == "concat" else self.d_value
        self.d_head_value = d_head_value
        self.d_output = d_query if d_output is None else d_output
        for name in ("d_key", "d_value", "d_head", "d_head_value", "d_output"):
            setattr(self, name, whole(name, getattr(self, name)))
        merged = self.d_head_value * (heads if merge == "concat" else 1)
        self.query_projection = nn.Linear(d_query, heads * self.d_head, bias=bias)
        self.key_projection = nn.Linear(self.d_key, self.key_heads * self.d_head, bias=bias)
        self.value_projection = nn.Linear(
            self.d_value, self.key_heads * self.d_head_value, bias=bias
        )
        self.output_projection = nn.Linear(merged, self.d_output, bias=bias)
        self.query_norm, self.key_norm = (
            None if qk_norm is None else new_norm(self.d_head, qk_norm) for _ in range(2)
        )
        axes = (heads,) if self.group == 1 else (self.key_heads, self.group)
        self.score = None if score is None else build(score, self.d_head, self.d_head, heads=axes)
        _check_heads(self.score, axes)
        rule = None if normaliser is None else as_normaliser(normaliser)
        self.normaliser = rule if isinstance(normaliser, str) else normaliser
        self.rotary = rotary
        if rotary is not None:
            if isinstance(rotary, type) or not hasattr(rotary, "check"):
                raise not_callable("rotary", rotary, "regard.positions.Rotary(), or None")
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
        for norm in (self.query_norm, self.key_norm):
            if norm is not None:
                norm.reset_parameters()

    @answers(READING)
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
            query: The queries, one for each output.
            key: The keys that they are compared with; the queries themselves by default (self-attention).
            value: The values that are read; the keys by default.
            mask: Which keys each query may read, True = may be read: a mask of `regard.masks`,
                ``"causal"``, or a boolean tensor ``(queries, keys)``, ``(*batch, queries, keys)``
                for every head alike, or ``(*batch, heads, queries, keys)``. ``"causal"`` is for as many
                queries as keys; with a memory, the last query is at its last key.
                Padding is `padding` of the lengths, or a tensor ``(batch, 1, keys)``: two axes
                are refused where the first could be the batch.
            bias: Added to the scores, of the same shapes.
            memory: Keys and values from `remember`, read in place of ``key`` and ``value``. Several
                queries that are its last steps need a mask, or they would read the steps after them;
                where they shall, as in an encoder, it is ``torch.ones(1, 1, dtype=torch.bool)``.
            start: The place of the first query among the keys, for ``rotary``. By default the first query is
                at the first key; with a memory, the last query is at its last key.

        Returns:
            The merged readings, projected to ``d_output``: one tensor, where torch's module returns a
            pair. ``output, weights = attention(x)`` would split a batch of two; for the
            weights call `read`.

        Raises:
            ShapeError: If a width or a number of keys does not fit.
            ValueError: If both ``key`` or ``value`` and ``memory`` are given, or the last steps of a
                memory read it without a mask, or by one that counts from its first step.
        """
        return self._merge(self._read(attend, query, key, value, mask, bias, memory, start))

    @answers(READING)
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
        reading, look = self._read(read, query, key, value, mask, bias, memory, start)
        return self._merge(reading), look if self.group == 1 else look.merge_groups()

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
            memory: An earlier memory. It is changed: the new steps are appended to it, in place; to keep
                it as it is, pass ``copy.copy(memory)``. Their places, for ``rotary``, are those
                after its own.

        Returns:
            ``memory`` itself, longer now, or a new one.

        Example:
            >>> import torch
            >>> attention = MultiHeadAttention(8, heads=2)
            >>> prompt, step = torch.zeros(1, 3, 8), torch.zeros(1, 1, 8)
            >>> past = attention.remember(prompt)
            >>> attention(prompt, memory=past, mask="causal").shape
            torch.Size([1, 3, 8])
            >>> attention.remember(step, memory=past) is past, len(past)
            (True, 4)
            >>> attention(step, memory=past, mask="causal").shape
            torch.Size([1, 1, 8])
        """
        _check_memory(memory)
        start = 0 if memory is None else len(memory)
        keys = self._project("key", key, start)
        values = self._project("value", key if value is None else value)
        if memory is None:
            memory = HeadMemory(keys, values)
        else:
            memory.write(keys, values)
        memory.place = Place.of(key)
        return memory

    def _read(
        self,
        reader: Callable[..., Any],
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Any,
        bias: Tensor | None,
        memory: HeadMemory | None,
        start: int | None,
    ) -> Any:
        """What `attend` or `read` returns for all heads."""
        if memory is None:
            key = query if key is None else key
            queries = self._project("query", query, 0 if start is None else start)
            keys = self._project("key", key)
            values = self._project("value", key if value is None else value)
        else:
            check_tensor("query", query)
            _check_memory(memory)
            if not (key is None and value is None):
                raise ValueError("got a memory and a key or value as well: pass one or the other")
            if start is None:
                start = max(0, len(memory) - (query.shape[-2] if query.dim() > 1 else 0))
            queries = self._project("query", query, start)
            keys, values = memory.keys, memory.values
            # One step may read all of them, and "causal" is of the last steps.
            is_right = isinstance(mask, str) or (mask is None and query.shape[-2:-1] == (1,))
            if not is_right and memory.holds(query):
                check_steps(mask, query.shape[-2], len(memory))
            mask = _over_memory(mask, query.shape[-2], len(memory))
        if mask is not None or bias is not None:
            # By batch axis, the last one first: its length of the queries and of the keys.
            batch = list(zip_longest(query.shape[-3::-1], keys.shape[-4::-1], fillvalue=1))
            mask = self._over_heads("mask", mask, query, batch)
            bias = self._over_heads("bias", bias, query, batch)
        if self.group > 1:  # keys of a group of 1 are never copied
            queries = queries.unflatten(-3, (self.key_heads, self.group))
            keys, values = keys.unsqueeze(-3), values.unsqueeze(-3)
        return reader(
            queries,
            keys,
            values,
            score=self.score,
            bias=bias,
            mask=mask,
            normaliser=self.normaliser,
            dropout=self.dropout if self.training else 0.0,
        )

    def _project(self, name: str, sequence: Tensor, start: int = 0) -> Tensor:
        """The queries, keys or values of all heads; queries and keys with their norm, and turned."""
        # As an attribute a module takes ten times as long to find.
        projection: Any = self._modules[f"{name}_projection"]
        check_tensor(name, sequence)
        shape = sequence.shape
        if len(shape) < 2 or shape[-1] != projection.in_features:
            raise ShapeError(
                f"{name} has shape {tuple(shape)}: pass"
                f" [..., length, {projection.in_features}],"
                " the width that this attention was built for"
            )
        weight = projection._parameters.get("weight")
        if weight is not None and sequence.dtype != weight.dtype and type(projection) is nn.Linear:
            _check_precision(name, sequence, weight)
        heads = self.heads if name == "query" else self.key_heads
        projected = call(projection, sequence)
        width = projected.shape[-1] // heads
        projected = projected.view(*shape[:-1], heads, width).transpose(-2, -3)
        if name == "value":
            return projected
        norm = self.query_norm if name == "query" else self.key_norm
        if norm is not None:
            projected = norm(projected)
        return projected if self.rotary is None else self.rotary(projected, start)

    def _merge(self, reading: Tensor) -> Tensor:
        if self.group > 1:
            reading = reading.flatten(-4, -3)
        if self.merge == "sum":
            merged = reading.sum(-3)
        else:
            merged = reading.transpose(-2, -3).flatten(-2)
        projection: Any = self._modules["output_projection"]
        return call(projection, merged)

    def _over_heads(
        self, name: str, plane: Any, query: Tensor, batch: list[tuple[int, int]]
    ) -> Any:
        """A tensor with batch axes but none for the heads gets one of size 1, in joined masks too.

        A mask without such a tensor stays the same object, which is worked out once for all layers.
        """
        if isinstance(plane, Given):
            return Given(self._over_heads(name, plane.tensor, query, batch))
        if isinstance(plane, Complement):
            inner = self._over_heads(name, plane.mask, query, batch)
            return plane if inner is plane.mask else Complement(inner)
        if isinstance(plane, Joined):
            sides = plane.left, plane.right
            a, b = (self._over_heads(name, side, query, batch) for side in sides)
            return plane if (a is plane.left and b is plane.right) else type(plane)(a, b)
        if not isinstance(plane, Tensor):
            return plane
        if plane.dim() == 2:
            _check_rows(name, plane, query)
        if 3 <= plane.dim() <= query.dim():
            if any(n not in (1, *of) for n, of in zip(plane.shape[-3::-1], batch, strict=False)):
                raise ShapeError(
                    f"{name} has shape {list(plane.shape)}, which is read as [batch, queries, keys], and query has"
                    f" shape {list(query.shape)}: for the heads pass [1, heads, queries, keys]"
                )
            plane = plane.unsqueeze(-3)
        if self.group == 1 or plane.dim() < 3:
            return plane
        if plane.shape[-3] == 1:
            return plane.unsqueeze(-3)
        if plane.shape[-3] != self.heads:
            raise ShapeError(f"{name} has {plane.shape[-3]} heads, this attention {self.heads}")
        return plane.unflatten(-3, (self.key_heads, self.group))

    def extra_repr(self) -> str:
        turning = "" if self.rotary is None else f", rotary={self.rotary}"
        grouped = "" if self.group == 1 else f", key_heads={self.key_heads}"
        return f"heads={self.heads}{grouped}, d_head={self.d_head}, merge={self.merge!r}{turning}"


def new_norm(width: int, kind: Norm = "layer") -> Any:
    """An nn.LayerNorm, or one without mean and bias, nn.RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467).

    Raises:
        ValueError: The kind is neither "layer" nor "rms".
    """
    width = whole("width", width)
    if not isinstance(kind, str) or kind not in get_args(Norm):
        raise unknown("normalisation", kind, get_args(Norm))
    return nn.RMSNorm(width, eps=1e-6) if kind == "rms" else nn.LayerNorm(width)


def check_steps(mask: Any, queries: int, keys: int) -> None:
    """Refuse a mask by which the last steps of a sequence read steps after them, or miss those before.

    Raises:
        ValueError: There is no mask and more than one query, or a mask that puts the queries at the
            first of more keys.
    """
    objection, or_all = None, ""
    if mask is None and queries > 1:
        objection = "and without a mask each would read the steps after it"
        or_all = "; where each shall read all of them: mask=torch.ones(1, 1, dtype=torch.bool)"
    rules = mask.rules() if isinstance(mask, Mask) else []
    if queries < keys and any(isinstance(rule, Band) and rule.align == "start" for rule in rules):
        objection = 'and the mask has align="start", which puts them at the first'
    if objection is not None:
        raise ValueError(
            f"the queries are the last {queries} of the {keys} steps in the memory, {objection}:"
            f' pass mask="causal", or a mask of regard.masks with align="end"{or_all}'
        )


def _check_heads(score: object, axes: Shape) -> None:
    """Refuse a score with parameters for other heads."""
    heads = score.head_axes if isinstance(score, PairScore) else ()
    if len(heads) > len(axes) or any(
        size not in (1, count) for size, count in zip(heads[::-1], axes[::-1], strict=False)
    ):
        raise ShapeError(
            f"the score was made with heads={list(heads)}, this attention has {list(axes)}:"
            f" pass a score with heads={list(axes)}, or None for one set of parameters"
        )


def _check_memory(memory: object) -> None:
    if memory is not None and not isinstance(memory, HeadMemory):
        raise TypeError(
            f"memory is of type {type(memory).__name__}: pass a HeadMemory, which remember(key)"
            " returns; a tensor of keys is the argument key"
        )


def _check_precision(name: str, sequence: Tensor, weight: Tensor) -> None:
    """Refuse a precision that a projection cannot take; autocast would convert it."""
    precision, expected = (str(each.dtype).removeprefix("torch.") for each in (sequence, weight))
    stored = weight.dtype.itemsize == 1  # and converted before it is used
    if not stored and not torch.is_autocast_enabled(sequence.device.type):
        raise TypeError(
            f"{name} holds {precision}, this attention {expected}: pass {name}.to(torch.{expected})"
        )


def _over_memory(mask: Any, queries: int, keys: int) -> Any:
    """The mask over a memory, where "causal" puts the last query at the last key; one query reads all keys."""
    is_causal = isinstance(mask, str | Band) and mask in ("causal", CAUSAL_END)
    if is_causal and queries <= keys:
        return None if queries == 1 else CAUSAL_END
    return mask


def _check_rows(name: str, plane: Tensor, query: Tensor) -> None:
    """Refuse two axes of which the first is as long as the batch: (batch, keys) is padding."""
    batch, rows = query.shape[:-2], plane.shape[0]
    if rows == 1 or len(batch) != 1 or rows != batch[0]:
        return
    keys, queries = plane.shape[1], query.shape[-2]
    padding = "regard.masks.padding(lengths) or " if name == "mask" else ""
    either = f" or for each of the {queries} queries" if rows == queries else ""
    otherwise = f", or [1, {queries}, {keys}] for the queries" if rows == queries else ""
    raise ShapeError(
        f"{name} has shape [{rows}, {keys}], a row for each of the {rows} batch entries{either}:"
        f" pass {padding}shape [{rows}, 1, {keys}] for the batch{otherwise}"
    )
