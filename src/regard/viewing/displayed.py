"""A figure that a notebook shows without `%matplotlib inline`."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.viewing import figures


class DisplayedFigure(Figure):
    """A figure of matplotlib's with a picture of its own for notebooks; pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return figures.render(self, "png", dots_per_inch=100)
