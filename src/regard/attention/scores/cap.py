"""A soft bound on any score."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores.named import ScoreLike, as_score


class SoftCap(nn.Module):
    """A score kept between -cap and cap: cap * tanh(score / cap).

    Source: Gemma Team 2024, arXiv 2408.00118, section 2.

    Args:
        score: the score to bound, or the name of one without parameters.
        cap: the bound, above 0.

    Example:
        >>> import torch
        >>> from regard.attention.scores import Dot
        >>> SoftCap(Dot(), 2.0)(torch.tensor([[100.0]]), torch.tensor([[100.0]]))
        tensor([[2.]])
    """

    def __init__(self, score: ScoreLike, cap: float) -> None:
        super().__init__()
        if isinstance(cap, Tensor):
            raise TypeError(
                "cap is a tensor: pass a number; for one that is learned,"
                " score=lambda query, key: cap * torch.tanh(score(query, key) / cap)"
            )
        if not cap > 0:
            raise ValueError(f"cap is {cap}: pass a bound above 0")
        self.score, self.cap = as_score(score), float(cap)

    def forward(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"],
    ) -> Float[Tensor, "... queries keys"]:
        return self.cap * torch.tanh(self.score(query, key) / self.cap)

    def extra_repr(self) -> str:
        return f"score={self.score}, cap={self.cap}"
