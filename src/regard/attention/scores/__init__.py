"""Scores: how well each key fits each query. (query, key) -> (*batch, queries, keys)."""

from regard.attention.scores.named import ScoreLike, SoftCap, as_score, build
from regard.attention.scores.parametric import Additive, Concat, General
from regard.attention.scores.prepare import prepare
from regard.attention.scores.score import Cosine, Dot, DotLike, ScaledDot, Score

__all__ = [
    "Additive",
    "Concat",
    "Cosine",
    "Dot",
    "DotLike",
    "General",
    "ScaledDot",
    "Score",
    "ScoreLike",
    "SoftCap",
    "as_score",
    "build",
    "prepare",
]
