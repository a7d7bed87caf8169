"""`regard.plot`, a figure of a look or of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.attention.looks import Look
from regard.viewing.alignment import alignment_of
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
    """Draw a look, with a panel for each head, or an attention of a translation.

    A notebook displays the figure; `figure.savefig(path)` writes it.

    Args:
        shown: a look, or a translation that was made with ``looks=True``.
        name: the look of the translation to draw, a key of `translation.looks`; by default the
            cross-attention of the last layer.
        head: the head to draw; None for all heads of a look, or the mean of a translation's heads.
        queries: a word for each query of a look; None for positions.
        keys: a word for each key of a look; None for positions.
        title: the figure's title.
        theme: "light" or "dark".
        how: for a look, further arguments of `Look.plot`: `height`, `width`, `rows`, `columns`,
            `reduce` and `entry`.

    Returns:
        The figure, of matplotlib.

    Raises:
        ValueError: the translation has no such look, or no such theme exists.
        ShapeError: there are more than 16 panels, or not a word for each query or key.
        TypeError: `shown` is neither a look nor a translation, or an argument is for the other.

    >>> import torch, regard
    >>> figure = plot(regard.look(torch.eye(2), torch.eye(2)), queries=["a", "b"], keys=["x", "y"])
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    if isinstance(shown, Look):
        if name is not None:
            raise TypeError(f"name is {name!r}, which is only for a translation: leave it out")
        look = shown if head is None else shown[..., head]
        figure: Figure = look.plot(queries=queries, keys=keys, title=title, theme=theme, **how)
        return figure
    if not hasattr(shown, "looks"):
        raise TypeError(f"got a {type(shown).__name__}: pass a look or a translation")
    unused = [*how, *(["queries"] if queries else []), *(["keys"] if keys else [])]
    if unused:
        raise TypeError(f"{unused[0]} is only for a look, not for a translation: leave it out")
    return heat_map(alignment_of(shown, name, head, title), theme)
