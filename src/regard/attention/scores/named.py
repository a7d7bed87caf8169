"""Scores by name, and a soft bound on any of them."""

from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from regard.attention.constants import check_number
from regard.attention.names import named
from regard.attention.scores.parametric import Additive, General, Heads
from regard.attention.scores.score import (
    Change,
    Cosine,
    Dot,
    Keys,
    PairScore,
    Queries,
    ScaledDot,
    Score,
    Scores,
    pairwise,
    unchanged,
)

ScoreLike: TypeAlias = Score | str

PLAIN: dict[str, type[Dot | ScaledDot | Cosine]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "cosine": Cosine,
}
OWNING = ("general", "additive", "concat")  # names of scores that own parameters
EXAMPLE = "a score of regard.scores, its name or a function (query, key) -> scores"


def as_score(score: ScoreLike, d_query: int | str = "…", d_key: int | str = "…") -> Score:
    """The score itself, or the one of this name where that owns no parameters.

    Raises:
        ValueError: The name is unknown, or that of a score which owns parameters.
        TypeError: It is not a score.
    """
    if not (isinstance(score, str) and score in OWNING):
        plain: Score = named("score", score, PLAIN, EXAMPLE, others=OWNING)
        return plain
    built = "General" if score == "general" else "Additive"
    hidden = "" if score == "general" else ", d_hidden=…"
    raise ValueError(
        f"score {score!r} owns parameters: build"
        f" regard.scores.{built}(d_query={d_query}, d_key={d_key}{hidden}) once and pass it"
    )


def build(
    score: ScoreLike,
    d_query: int | None,
    d_key: int | None,
    d_hidden: int | None = None,
    heads: Heads = None,
) -> Score:
    """The score itself, or a new one of this name for these widths, for modules that own it.

    The hidden layer of an additive score is as wide as the query unless d_hidden says otherwise.

    Example:
        >>> build("additive", 3, 5)
        Additive(d_query=3, d_key=5, d_hidden=3)
    """
    if score not in OWNING:
        return as_score(score)
    if d_query is None or d_key is None:
        raise ValueError(f"score {score!r} owns parameters: pass the width of the keys, d_key=")
    if score == "general":
        return General(d_query, d_key, heads=heads)
    return Additive(d_query, d_key, d_hidden or d_query, heads=heads)


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
    def pair_width(self) -> int:
        return self.score.pair_width if isinstance(self.score, PairScore) else 1

    def is_itself(self) -> bool:
        return unchanged(self, SoftCap, "__call__", "forward") and pairwise(self.score) is not None

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
