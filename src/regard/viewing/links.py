"""Word links drawn on the attention weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from regard.viewing import colours, pictures
from regard.viewing.alignment import Alignment

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def linked(alignment: Alignment, links: Iterable[tuple[int, int]], theme: str = "light") -> Figure:
    """A heat map of weights, with a frame around each cell whose words are linked.

    Args:
        alignment: weights of target words (down) over source words (across).
        links: (source, target) positions, from 0.
        theme: "light" or "dark".

    Raises:
        ValueError: a link has no such word, or there is no such theme.
    """
    from matplotlib.patches import Rectangle

    targets, sources = alignment.weights.shape
    figure = pictures.heat_map(alignment, theme)
    frame: dict[str, Any] = {
        "fill": False,
        "edgecolor": colours.theme(theme).accent,
        "linewidth": 1.6,
    }
    for source, target in links:
        if not (0 <= source < sources and 0 <= target < targets):
            raise ValueError(
                f"link {source}-{target}: the picture has {sources} source and {targets} target words"
            )
        figure.axes[0].add_patch(Rectangle((source, target), 1, 1, clip_on=False, **frame))
    return figure
