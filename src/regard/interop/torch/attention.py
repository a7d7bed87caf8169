"""torch.nn.MultiheadAttention and ours: the same four projections, packed there, apart here."""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.heads import MultiHeadAttention
from regard.attention.normalisers import Softmax
from regard.attention.scores import ScaledDot


@torch.no_grad()
def attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Our module with copies of the weights of torch's.

    Ours takes ``(batch, length, width)`` whatever ``batch_first`` says, and masks with True = may be read (see
    `masks_from_torch`). A row with nothing to read gives zero, and NaN there.

    Args:
        theirs: with any ``kdim``, ``vdim`` and ``bias``.

    Returns:
        A module of the same type, device, dropout and mode.

    Raises:
        ValueError: If it was made with ``add_bias_kv`` or ``add_zero_attn``.

    Example:
        >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.ones(1, 3, 8)
        >>> bool(torch.allclose(attention_from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6))
        True
    """
    if theirs.bias_k is not None or theirs.bias_v is not None:
        raise ValueError(
            "made with add_bias_kv: it reads a key and a value of its own beside those it is given, ours reads "
            "what it is given; train it without, or append bias_k and bias_v to the projected memory yourself"
        )
    if theirs.add_zero_attn:
        raise ValueError(
            "made with add_zero_attn: it reads a key and a value of zeros beside those it is given, ours reads "
            "what it is given; it has no parameters, so make it without, or append zeros to the projected memory"
        )
    ours = MultiHeadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        d_key=theirs.kdim,
        d_value=theirs.vdim,
        bias=theirs.in_proj_bias is not None,
        dropout=theirs.dropout,
    ).to(theirs.out_proj.weight)
    if theirs.in_proj_weight is not None:
        weights = theirs.in_proj_weight.chunk(3)
    else:
        weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    for projection, weight in zip(_inputs(ours), weights, strict=True):
        projection.weight.copy_(weight)
    ours.output_projection.weight.copy_(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        for projection, bias in zip(_inputs(ours), theirs.in_proj_bias.chunk(3), strict=True):
            projection.bias.copy_(bias)
        ours.output_projection.bias.copy_(theirs.out_proj.bias)
    return ours.train(theirs.training)


@torch.no_grad()
def attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's module, ``batch_first``, with copies of the weights of ours.

    Raises:
        ValueError: If ours has a score, a normaliser, a merge or widths that torch's has not.
    """
    _check_plain(ours)
    first = ours.query_projection
    theirs = nn.MultiheadAttention(
        ours.d_query,
        ours.heads,
        dropout=ours.dropout,
        bias=first.bias is not None,
        kdim=ours.d_key,
        vdim=ours.d_value,
        batch_first=True,
        device=first.weight.device,
        dtype=first.weight.dtype,
    )
    weights = [projection.weight for projection in _inputs(ours)]
    if theirs.in_proj_weight is not None:
        theirs.in_proj_weight.copy_(torch.cat([*weights]))
    else:
        parts = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        for part, weight in zip(parts, weights, strict=True):
            part.copy_(weight)
    theirs.out_proj.weight.copy_(ours.output_projection.weight)
    if first.bias is not None:
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in _inputs(ours)]))
        theirs.out_proj.bias.copy_(ours.output_projection.bias)
    return theirs.train(ours.training)


def _inputs(ours: MultiHeadAttention) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return ours.query_projection, ours.key_projection, ours.value_projection


def _check_plain(ours: MultiHeadAttention) -> None:
    if ours.rotary is not None:
        raise ValueError(
            f"it turns queries and keys by their places, {ours.rotary}: torch's does not"
        )
    if ours.group > 1 or ours.query_norm is not None:
        raise ValueError(
            f"{ours.key_heads} key heads for {ours.heads} heads, or norms of queries and keys: torch's has neither"
        )
    scaled = ours.score is None or ours.score == ScaledDot()
    if not scaled or not (ours.normaliser is None or ours.normaliser == Softmax()):
        raise ValueError(
            f"score {ours.score} and normaliser {ours.normaliser}: torch's has scaled dot products and softmax only"
        )
    if ours.merge != "concat":
        raise ValueError(
            f'merge is {ours.merge!r}: torch lays heads side by side, as "concat" does'
        )
    widths = (ours.heads * ours.d_head, ours.heads * ours.d_head_value, ours.d_output)
    if set(widths) != {ours.d_query}:
        raise ValueError(
            f"heads together are {widths[0]} and {widths[1]} wide, the output {widths[2]}: "
            f"torch's are all as wide as the queries, {ours.d_query}"
        )
