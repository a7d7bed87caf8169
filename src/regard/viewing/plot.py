"""One door to a figure of anything that has weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.attention.looks import Look
from regard.viewing.alignment import Alignment, by_head, mean
from regard.viewing.pictures import heat_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.translation.results import Translation


def plot(
    shown: Look | Translation,
    *,
    name: str | None = None,
    head: int | None = None,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    title: str | None = None,
    theme: str = "light",
    **how: Any,
) -> Figure:
    """Draw a look, with a panel for each head, or what the words of a translation looked at.

    A notebook shows the figure; `figure.savefig(path)` writes it.

    Args:
        shown: a look, or a translation that was made with ``looks=True``.
        name: of a translation, the look to draw, one of `translation.looks`; by default the
            cross-attention of the last layer.
        head: the head to draw, the last batch axis; None for a panel for each of a look, and for
            the mean of a translation's heads.
        queries: of a look, a word for each query; None for their positions.
        keys: of a look, a word for each key; None for their positions.
        title: the figure's title.
        theme: "light" or "dark".
        how: of a look, further arguments of `Look.plot`: `height`, `width`, `rows`, `columns`,
            `reduce` and `entry`.

    Returns:
        The figure, of matplotlib.

    Raises:
        ValueError: the translation has no such look, or no such theme exists.
        ShapeError: there are more than 16 panels, or not a word for each query or key.
        TypeError: it is neither a look nor a translation, or an argument is of the other kind.

    >>> import torch, regard
    >>> figure = plot(regard.look(torch.eye(2), torch.eye(2)), queries=["a", "b"], keys=["x", "y"])
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    if isinstance(shown, Look):
        if name is not None:
            raise TypeError(f"name is {name!r}, and a look is a single one: leave it out")
        look = shown if head is None else shown[..., head]
        figure: Figure = look.plot(queries=queries, keys=keys, title=title, theme=theme, **how)
        return figure
    if not hasattr(shown, "looks"):
        raise TypeError(f"got a {type(shown).__name__}: pass a look or a translation")
    others = [*how, *(["queries"] if queries else []), *(["keys"] if keys else [])]
    if others:
        raise TypeError(f"a translation is drawn with its own words: leave out {others[0]}")
    return heat_map(alignment_of(shown, name, head, title), theme)


def alignment_of(
    translation: Translation,
    name: str | None = None,
    head: int | None = None,
    title: str | None = None,
) -> Alignment:
    """One look of a translation in whole words; the mean of its heads unless one is asked for.

    Raises:
        ValueError: the translation has no such look.
    """
    name = last_cross(translation) if name is None else name
    if name is None or name not in translation.looks:
        known = ", ".join(translation.looks) or "none: translate with looks=True"
        wanted = "of cross-attention" if name is None else repr(name)
        raise ValueError(f"the translation has no look {wanted}: there are {known}")
    look = translation.looks[name]
    heads = by_head(look if head is None else look[..., head], *translation.labels(name))
    said = name if head is None else f"{name}, head {head}"
    return mean([each.words() for each in heads], title=said if title is None else title)


def last_cross(translation: Translation) -> str | None:
    """The name of the cross-attention of the last layer."""
    crossing = [name for name in translation.looks if name.endswith("cross")]
    return crossing[-1] if crossing else None
