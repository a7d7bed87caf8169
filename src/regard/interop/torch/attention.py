"""torch.nn.MultiheadAttention and ours: the same four projections, packed there, apart here; and its masks."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.heads import MultiHeadAttention
from regard.interop.heads import PROJECTIONS, check_plain

_PARTS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


@torch.no_grad()
def attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Our module with copies of the weights of torch's: see `from_torch`."""
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
    packed, bias = theirs.in_proj_weight, theirs.in_proj_bias
    inputs = [getattr(theirs, part) for part in _PARTS] if packed is None else packed.chunk(3)
    state = dict(zip(_names("weight"), [*inputs, theirs.out_proj.weight], strict=True))
    if bias is not None:
        state |= zip(_names("bias"), [*bias.chunk(3), theirs.out_proj.bias], strict=True)
    ours.load_state_dict(state)
    return ours.train(theirs.training)


@torch.no_grad()
def attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's module with copies of the weights of ours: see `to_torch`."""
    check_plain(ours, "torch's")
    widths = (ours.heads * ours.d_head, ours.heads * ours.d_head_value, ours.d_output)
    if ours.group > 1:
        raise ValueError(f"{ours.key_heads} key heads for {ours.heads} heads: torch's are as many")
    if set(widths) != {ours.d_query}:
        raise ValueError(
            f"heads together are {widths[0]} and {widths[1]} wide, the output {widths[2]}: "
            f"torch's are all as wide as the queries, {ours.d_query}"
        )
    projection = ours.query_projection
    theirs = nn.MultiheadAttention(
        ours.d_query,
        ours.heads,
        dropout=ours.dropout,
        bias=projection.bias is not None,
        kdim=ours.d_key,
        vdim=ours.d_value,
        batch_first=True,
        device=projection.weight.device,
        dtype=projection.weight.dtype,
    )
    weights: list[Tensor] = [ours.get_parameter(name) for name in _names("weight")]
    if theirs.in_proj_weight is None:
        state = dict(zip(_PARTS, weights, strict=False))
    else:
        state = {"in_proj_weight": torch.cat(weights[:3])}
    state["out_proj.weight"] = weights[3]
    if projection.bias is not None:
        biases: list[Tensor] = [ours.get_parameter(name) for name in _names("bias")]
        state |= {"in_proj_bias": torch.cat(biases[:3]), "out_proj.bias": biases[3]}
    theirs.load_state_dict(state)
    return theirs.train(ours.training)


def _names(kind: str) -> list[str]:
    return [f"{projection}.{kind}" for projection in PROJECTIONS]


def masks_from_torch(
    attn_mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    key_padding_mask: Bool[Tensor, "batch keys"] | Float[Tensor, "batch keys"] | None = None,
    *,
    heads: int,
) -> dict[str, Tensor | None]:
    """The masks of torch's attention as ours takes them: ``ours(x, **masks_from_torch(..., heads=h))``.

    True hides a key in `nn.MultiheadAttention` and in the layers of `nn.Transformer`, and shows it here (and in
    `scaled_dot_product_attention`). A mask of numbers is added to the scores in both.

    Args:
        attn_mask: ``(queries, keys)`` or ``(batch * heads, queries, keys)``; True = hidden.
        key_padding_mask: True = hidden, for every query.
        heads: Number of heads, to tell them from the batch.

    Returns:
        ``mask``, True = may be read, and ``bias``; None where there is no restriction.

    Example:
        >>> import torch
        >>> masks_from_torch(torch.tensor([[False, True], [False, False]]), heads=2)["mask"]
        tensor([[ True, False],
                [ True,  True]])
    """
    mask: Tensor | None = None
    bias: Tensor | None = None
    each_head = attn_mask is not None and attn_mask.dim() == 3
    if attn_mask is not None and each_head:
        attn_mask = attn_mask.unflatten(0, (-1, heads))
    if key_padding_mask is not None:
        key_padding_mask = (
            key_padding_mask[:, None, None] if each_head else key_padding_mask[:, None]
        )
    for torch_mask in (attn_mask, key_padding_mask):
        if torch_mask is None:
            continue
        if torch_mask.is_floating_point():
            bias = torch_mask if bias is None else bias + torch_mask
        else:
            mask = ~torch_mask.bool() if mask is None else mask & ~torch_mask.bool()
    return {"mask": mask, "bias": bias}
