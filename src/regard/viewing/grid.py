"""A grid of numbers by layer and head, such as effects, as a figure: red above 0, blue below."""

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.viewing import canvas, colours

CELL = 0.28  # inches
BELOW, ABOVE = "#2166ac", "#b2182b"


def plot(table: Any, *, title: str | None = None, theme: str = "light") -> Figure:
    """Draw a table of effects; `table.plot()` is the same.

    Args:
        table: an `EffectTable`, or anything with `array()`, `of` and `heading`.
        title: the title of the figure; by default the heading of the table.
        theme: "light" or "dark".

    Returns:
        The figure. A notebook displays it.

    Raises:
        ValueError: there is no such theme.
    """
    palette = colours.theme(theme)
    numbers = table.array().numpy()
    cells = np.ma.masked_invalid(numbers if numbers.ndim == 2 else numbers[None])
    height, width = cells.shape
    limit = float(f"{np.abs(cells).max():.2g}") if cells.count() else 1.0
    limit = limit or 1.0
    figure = canvas.blank(
        1.4 + max(1.2, CELL * width),
        0.6 + CELL * height,
        palette,
        title=table.heading if title is None else title,
    )
    axes = figure.subplots()
    axes.patch.set_facecolor(palette.paper)
    colormap = LinearSegmentedColormap.from_list("effects", [BELOW, palette.paper, ABOVE])
    image = axes.imshow(cells, cmap=colormap, vmin=-limit, vmax=limit, aspect="auto")
    across = {"heads": "head", "layers": "layer", "keys": "key"}[table.of]
    axes.set_xlabel(across, color=palette.faint)
    axes.set_ylabel("layer" if numbers.ndim == 2 else "", color=palette.faint)
    sides = (axes.xaxis, width, CELL * width), (axes.yaxis, height, CELL * height)
    for axis, count, inches in sides:
        labels = list(map(str, range(count))) if numbers.ndim == 2 or axis is axes.xaxis else [""]
        canvas.write_words(
            axis, labels, max(1.0, inches), 8, palette, start=0, colour=palette.faint
        )
    canvas.draw_bar(figure, image, [axes], palette, "effect")
    return figure
