"""Scores: how well each key fits each query. (query, key) -> (*batch, queries, keys)."""

from regard.attention.scores.by_name import ScoreLike, as_score, build
from regard.attention.scores.parametric import Additive, Concat, General
from regard.attention.scores.score import Cosine, Dot, DotLike, PairScore, ScaledDot, Score, prepare
from regard.attention.scores.soft_cap import SoftCap

__all__ = [
    "Additive",
    "Concat",
    "Cosine",
    "Dot",
    "DotLike",
    "General",
    "PairScore",
    "ScaledDot",
    "Score",
    "ScoreLike",
    "SoftCap",
    "as_score",
    "build",
    "prepare",
]
