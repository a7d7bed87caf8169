"""Scores: how well each key fits each query. (query, key) -> (*batch, queries, keys)."""

from regard.attention.scores.additive import Additive, Concat
from regard.attention.scores.cap import SoftCap
from regard.attention.scores.dot import Cosine, Dot, DotLike, ScaledDot
from regard.attention.scores.general import General
from regard.attention.scores.named import ScoreLike, as_score, build
from regard.attention.scores.prepare import prepare
from regard.attention.scores.protocol import Score

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
