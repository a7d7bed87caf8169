"""The one equation: Attention(Q, K, V) = normalise(mask(score(Q, K) + bias)) V."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.plain import PLAIN_SCORES, read_plain
from regard.attention.kernels.request import ask
from regard.attention.kernels.serve import serve
from regard.attention.looks import Look
from regard.attention.looks.sharing import shared
from regard.attention.masks import MaskLike
from regard.attention.normalisers import NormaliserLike
from regard.attention.positions.biases import BiasLike
from regard.attention.scores import ScoreLike
from regard.attention.torch_names import FUSED, answers

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from regard.attention.ranks import RanksLook


@answers(FUSED)
def attend(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    value: Float[Tensor, "*#batch keys d_value"],
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    dropout: float = 0.0,
    group: ProcessGroup | None = None,
) -> Float[Tensor, "... queries d_value"]:
    """Read a memory: every key scored against the query, the values blended by the weights.

    weights = normalise(mask(score(query, key) + bias)); reading = weights x value

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1, with any score and normaliser.

    Args:
        query: the queries, (*batch, queries, d_query). Heads are one more batch axis.
        key: the keys, (*batch, keys, d_key). Batch axes broadcast; one of size 1 is
            never copied.
        value: the values, one for each key, (*batch, keys, d_value).
        score: how well a key fits a query; ScaledDot() by default. A name stands for a score
            without parameters: "dot", "scaled_dot", "cosine". Any function (query, key) ->
            scores will do; it may be called with some of the queries at a time.
        bias: added to the scores; broadcasts to (*batch, queries, keys). A bias of -inf is a mask.
            A function (query positions (queries, 1), key positions (1, keys)) -> numbers is called
            for some queries and keys at a time where the request is large; Alibi(heads) and
            RelativeBias(heads) of `regard.positions` are such functions.
        mask: True = may be read. A boolean tensor that broadcasts to (*batch, queries, keys), a
            mask of `regard.masks`, "causal" for as many queries as keys, or a function
            (query positions, key positions) -> booleans.
            A query with nothing to read gets a reading of zeros, and no gradient.
        normaliser: scores -> weights; Softmax() by default. A name builds one: "softmax", "hard",
            "sparsemax", "entmax", "identity". Any function rows -> rows will do; it sees -1.8e19
            (-1.3e154 in float64) where a key may not be read.
        dropout: rate at which weights are dropped. It applies whenever it is above 0.
        group: processes that share out the keys, a group of torch.distributed that has Gloo. Each
            passes the same queries and its own keys and values; the keys follow one another in the
            order of the ranks, and mask and bias are those of all keys. Every rank gets the reading of
            all keys; see docs/guides/machines.md.

    Returns:
        The reading, (*batch, queries, d_value).

    Raises:
        ShapeError: axes that do not fit one another.
        ValueError: a name is unknown, or that of a score which owns parameters; tensors are on
            several devices.
        KernelRefusedError: a kernel is pinned that cannot serve this.
        ChangedError: in the backward pass, where a tensor that it reads again was changed in place.
        RankError: another process of the group failed, or passed other queries.

    Example:
        >>> import torch
        >>> key, value = torch.eye(2), torch.tensor([[1.0], [3.0]])
        >>> attend(torch.zeros(1, 2), key, value)
        tensor([[2.]])
    """
    if group is not None:
        from regard.attention.ranks import attend_over_ranks

        options = {"score": score, "bias": bias, "mask": mask, "normaliser": normaliser}
        return attend_over_ranks(group, query, key, value, dropout=dropout, **options)
    may_be_plain = score is None or not PLAIN_SCORES.isdisjoint(type(score).__mro__)
    if may_be_plain and bias is None and normaliser is None and dropout == 0:
        reading = read_plain(query, key, value, score, mask)
        if reading is not None:
            return reading
    request = ask(
        query, key, value, score=score, bias=bias, mask=mask, normaliser=normaliser, dropout=dropout
    )
    return serve(request, value)


@overload
def look(
    query: Tensor,
    key: Tensor,
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    group: None = None,
) -> Look: ...


@overload
def look(
    query: Tensor,
    key: Tensor,
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    group: ProcessGroup,
) -> RanksLook: ...


@answers(FUSED)
def look(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    group: ProcessGroup | None = None,
) -> Look | RanksLook:
    """The weights of each query over the keys. They are computed when a method is called.

    A function of the caller's is called for one row, to learn which tensors it reads: none of the
    tensors that the weights are made of may change in place before the last answer.

    Args: those of `attend`, without the value.

    Returns:
        A Look of shape (*batch, queries, keys); with a group a RanksLook. Its methods raise a ChangedError
        where a tensor of the call was changed in place since.

    Raises:
        ShapeError: axes that do not fit one another.

    Example:
        >>> import torch
        >>> look(torch.zeros(1, 2), torch.eye(2)).weights()
        tensor([[0.5000, 0.5000]])
    """
    if group is not None:
        from regard.attention.ranks import look_over_ranks

        options = {"score": score, "bias": bias, "mask": mask, "normaliser": normaliser}
        return look_over_ranks(group, query, key, **options)
    request = ask(query, key, score=score, bias=bias, mask=mask, normaliser=normaliser)
    return Look(request)


@answers(FUSED)
def read(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    value: Float[Tensor, "*#batch keys d_value"],
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "... queries d_value"], Look]:
    """The reading and the look at its weights, which share the score's projections.

    Args and errors: those of `attend`. The look's weights are those before dropout. Gradients of
    both go through the same projections, so they are taken in one backward pass.

    Returns:
        The reading, (*batch, queries, d_value), and a Look of shape (*batch, queries, keys).

    Example:
        >>> import torch
        >>> reading, look = read(torch.zeros(1, 2), torch.eye(2), torch.eye(2))
        >>> look.shape
        (1, 2)
    """
    request = ask(
        query, key, value, score=score, bias=bias, mask=mask, normaliser=normaliser, dropout=dropout
    )
    projected = shared(request)
    return serve(projected, value), Look(projected)
