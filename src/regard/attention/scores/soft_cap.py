"""A soft bound on any score."""

from typing import cast

import torch
from torch import Tensor, nn

from regard.attention.constants import check_number
from regard.attention.scores.by_name import ScoreLike, as_score
from regard.attention.scores.score import (
    Change,
    Keys,
    PairScore,
    Queries,
    Score,
    Scores,
    Terms,
    pairwise,
)
from regard.attention.shapes import Shape


class SoftCap(nn.Module, PairScore):
    """A score kept between -cap and cap: cap * tanh(score / cap).

    Source: Gemma Team 2024, arXiv 2408.00118, section 2.

    Args:
        score: the score to bound, or the name of one without parameters.
        cap: the bound, above 0.

    Example:
        >>> import torch
        >>> from regard.scores import Dot
        >>> SoftCap(Dot(), 2.0)(torch.tensor([[100.0]]), torch.tensor([[100.0]]))
        tensor([[2.]])
    """

    computation = ("__call__", "forward")

    def __init__(self, score: ScoreLike, cap: float) -> None:
        super().__init__()
        learned = "score=lambda query, key: cap * torch.tanh(score(query, key) / cap)"
        check_number("cap", cap, f"for one that is learned, {learned}")
        if not cap > 0:
            raise ValueError(f"cap is {cap}: pass a bound above 0")
        self.score, self.cap = as_score(score), float(cap)

    def forward(self, query: Queries, key: Keys) -> Scores:
        return self.cap * torch.tanh(self.score(query, key) / self.cap)

    @property
    def alike_for_heads(self) -> bool:
        return isinstance(self.score, PairScore) and self.score.alike_for_heads

    @property
    def head_axes(self) -> Shape:
        return self.score.head_axes if isinstance(self.score, PairScore) else ()

    def terms(self, query: Queries, key: Keys) -> Terms | None:
        terms = self.score.terms(query, key) if isinstance(self.score, PairScore) else None
        return None if terms is None or terms.cap is not None else terms._replace(cap=self.cap)

    @property
    def pair_width(self) -> int:
        return self.score.pair_width if isinstance(self.score, PairScore) else 1

    def capped(self) -> tuple[Score, float]:
        return self.score, self.cap

    def is_itself(self) -> bool:
        return super().is_itself() and pairwise(self.score) is not None

    def with_parameters(self, change: Change) -> PairScore | None:
        inner = pairwise(self.score) if type(self) is SoftCap else None
        changed_score = inner and inner.with_parameters(change)
        return changed_score and SoftCap(changed_score, self.cap)

    def prepare(self, key: Keys) -> tuple[Score, Tensor]:
        score, key = cast(PairScore, self.score).prepare(key)
        return SoftCap(score, self.cap), key

    def prepare_both(self, query: Queries, key: Keys) -> tuple[Score, Tensor, Tensor]:
        score, query, key = cast(PairScore, self.score).prepare_both(query, key)
        return SoftCap(score, self.cap), query, key

    def extra_repr(self) -> str:
        return f"score={self.score}, cap={self.cap}"
