"""torch's masks in our polarity."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


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
    for given in (attn_mask, key_padding_mask):
        if given is None:
            continue
        if given.is_floating_point():
            bias = given if bias is None else bias + given
        else:
            mask = ~given.bool() if mask is None else mask & ~given.bool()
    return {"mask": mask, "bias": bias}
