"""`regard.declare`, for models whose own code computes attention."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.request import ask
from regard.attention.masks import MaskLike
from regard.attention.normalisers import Normaliser
from regard.attention.scores import Score
from regard.watching import running
from regard.watching.captured import from_request


def declare(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    *,
    score: Score | None = None,
    bias: Float[Tensor, "..."] | None = None,
    mask: MaskLike | None = None,
    normaliser: Normaliser | Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Report the arguments of an attention to the open watches, if there are any.

    Call it in a module whose own code computes softmax(Q K^T / sqrt(d)) V, which a watch cannot
    detect. The output of the module does not change.

    The arguments are those of `regard.look`. The score is the scaled dot product by default. In the
    mask, True = may be read.

    Example:
        >>> import torch, regard
        >>> class ByHand(torch.nn.Module):
        ...     def forward(self, x):
        ...         regard.declare(x, x)
        ...         return torch.softmax(x @ x.mT / x.shape[-1] ** 0.5, -1) @ x
        >>> model = ByHand()
        >>> with regard.watch(model) as seen:
        ...     output = model(torch.eye(2))
        >>> torch.equal(seen["self"].weights() @ torch.eye(2), output)
        True
    """
    if running.is_observed():
        how = {"score": score, "bias": bias, "mask": mask, "normaliser": normaliser}
        running.report_attention(lambda: from_request(ask(query, key, **how)))  # type: ignore[arg-type]
