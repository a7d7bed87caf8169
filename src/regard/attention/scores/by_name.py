"""Scores by name."""

from typing import Any, TypeAlias

from regard.attention.by_name import named
from regard.attention.scores.parametric import Heads
from regard.attention.scores.score import CLASSES, Score

ScoreLike: TypeAlias = Score | str
EXAMPLE = "a score of regard.scores, its name or a function (query, key) -> scores"


def as_score(score: ScoreLike, d_query: int | str = "…", d_key: int | str = "…") -> Score:
    """The score itself, or the one of this name where that owns no parameters.

    Raises:
        ValueError: The name is unknown, or that of a score which owns parameters.
        TypeError: It is not a score.
    """
    owner = CLASSES.get(score) if isinstance(score, str) else None
    if owner is None or not owner.widths:
        plain: Score = named("score", score, CLASSES, EXAMPLE)
        return plain
    sizes = {"d_query": d_query, "d_key": d_key}
    widths = ", ".join(f"{name}={sizes.get(name, '…')}" for name in owner.widths)
    place = "regard.scores." if owner.__module__.startswith(__package__) else ""
    raise ValueError(
        f"score {score!r} owns parameters: build {place}{owner.__name__}({widths}) once and pass it"
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
    owner: Any = CLASSES.get(score) if isinstance(score, str) else None
    if owner is None or not owner.widths:
        return as_score(score)
    if d_query is None or d_key is None:
        raise ValueError(f"score {score!r} owns parameters: pass the width of the keys, d_key=")
    sizes = {"d_query": d_query, "d_key": d_key, "d_hidden": d_hidden or d_query}
    built: Score = owner(**{name: sizes[name] for name in owner.widths}, heads=heads)
    return built
