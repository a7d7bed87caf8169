"""A figure that a notebook displays without `%matplotlib inline`."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.viewing import figures


class DisplayedFigure(Figure):
    """A matplotlib figure that renders itself for notebooks, independently of pyplot."""

    def _repr_png_(self) -> bytes:
        return figures.render(self, "png", dots_per_inch=100)
