"""Alignments as heat maps: one, one with links, or one for each layer and head. Queries go down, keys across."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.viewing import canvas, colours
from regard.viewing.alignment import Alignment, scale_of
from regard.viewing.labels import percent

_MOST_NUMBERED = 16
_NAME, _ABOVE = 8.5, 0.2  # of the name of a layer or head: its size in points, its room in inches
_LEAST, _BETWEEN = 0.5, 0.1  # inches of a panel, and between two

Panel = tuple[int | str, int | str, Alignment]


@dataclass(frozen=True)
class _Sizes:
    """The size of a cell in inches, and of words in points.

    Many cells are smaller, so that the panel has at most `side`, and all panels `together`. No cell is smaller than
    `smallest`, the space of a readable word, unless the panels would have more than `limit` together.
    """

    cell: float
    side: float
    together: float
    smallest: float
    limit: float
    points: tuple[float, float]
    longest_word: int

    def label(self, word: str) -> str:
        return canvas.label(word, self.longest_word)

    def panel(self, words: int, panels: int) -> float:
        """The side of a panel with so many words, in a row of so many panels."""
        ordinary = min(self.side, words * self.cell, self.together / panels)
        return max(_LEAST, min(max(ordinary, words * self.smallest), self.limit / panels))

    def type_size(self, cell: float) -> float:
        least, most = self.points
        return min(most, max(least, 72 * cell * 0.72))


_ALONE = _Sizes(0.40, 11.0, 11.0, 0.1, 24.0, (6.0, 10.0), 24)
_MANY = _Sizes(0.18, 2.3, 16.0, 0.09, 30.0, (5.5, 7.5), 14)


def heat_map(alignment: Alignment, theme: str = "light") -> Figure:
    """Draw an alignment as a matplotlib figure; `figures.save` writes it to a file.

    Long sentences get smaller cells, as long as words can be read. Then the figure grows up to 24
    inches. For longer sentences some words are left out. The colour scale ends at a round number.
    Masked cells are hatched. Weights of 10% and more are written into the cells, in percent, if there is room.

    Args:
        alignment: the weights to draw.
        theme: "light" or "dark".

    Raises:
        ValueError: there is no such theme.
    """
    palette = colours.theme(theme)
    figure = _draw({(0, 0): alignment}, [""], [""], _ALONE, palette, alignment.title)
    if max(alignment.weights.shape) <= _MOST_NUMBERED:
        _write_numbers(figure.axes[0], alignment, palette)
    return figure


def linked(alignment: Alignment, links: Iterable[tuple[int, int]], theme: str = "light") -> Figure:
    """A heat map of weights, with a frame around each cell whose words are linked.

    Args:
        alignment: weights of target words (down) over source words (across).
        links: (source, target) positions, from 0.
        theme: "light" or "dark".

    Raises:
        ValueError: a link has no such word, or there is no such theme.
    """
    targets, sources = alignment.weights.shape
    figure = heat_map(alignment, theme)
    frame: dict[str, Any] = {"fill": False, "edgecolor": colours.theme(theme).accent}
    for source, target in links:
        if not (0 <= source < sources and 0 <= target < targets):
            raise ValueError(
                f"link {source}-{target}: the picture has {sources} source and {targets} target words"
            )
        cell = Rectangle((source, target), 1, 1, clip_on=False, linewidth=1.6, **frame)
        figure.axes[0].add_patch(cell)
    return figure


def small_multiples(
    panels: Sequence[Panel], theme: str = "light", *, title: str = "", subtitle: str = ""
) -> Figure:
    """Draw many alignments, layers down and heads across, on one colour scale.

    Equal colours mean equal weights. Words are written to the left of the first head and above the first layer.
    A layer with other keys than the layer above has words of its own.

    Args:
        panels: (layer, head, alignment) in the order to draw; a number is shown as "layer 0" or
            "head 0", a string as it is.
        theme: "light" or "dark".
        title: the title of the picture.
        subtitle: a smaller line below the title, such as the model and the attention.

    Raises:
        ValueError: there are no panels, two of one layer and head, or no such theme.
    """
    if not panels:
        raise ValueError("no panels to draw: pass at least one (layer, head, alignment)")
    layers = list(dict.fromkeys(_name("layer", layer) for layer, _, _ in panels))
    heads = list(dict.fromkeys(_name("head", head) for _, head, _ in panels))
    placed: dict[tuple[int, int], Alignment] = {}
    for layer, head, alignment in panels:
        names = _name("layer", layer), _name("head", head)
        place = layers.index(names[0]), heads.index(names[1])
        if place in placed:
            raise ValueError(f"two panels for {', '.join(names)}: pass one for each layer and head")
        placed[place] = alignment
    return _draw(placed, layers, heads, _MANY, colours.theme(theme), title, subtitle)


def _draw(
    placed: dict[tuple[int, int], Alignment],
    rows: list[str],
    columns: list[str],
    sizes: _Sizes,
    palette: colours.Theme,
    title: str,
    subtitle: str = "",
) -> Figure:
    """Alignments by (row, column), with the names of rows and columns."""
    short = {
        place: ([sizes.label(q) for q in each.queries], [sizes.label(k) for k in each.keys])
        for place, each in placed.items()
    }
    firsts = [short[min(place for place in placed if place[0] == row)] for row in range(len(rows))]
    most = max(len(keys) for _, keys in firsts)
    width = sizes.panel(most, len(columns))
    heights = [sizes.panel(len(queries), len(rows)) for queries, _ in firsts]
    slanted = width / most > 0.2
    left = above = rise = 0.0
    for row, (queries, keys) in enumerate(firsts):
        points = sizes.type_size(heights[row] / len(queries))
        left = max(left, *(canvas.measure(query, points) for query in queries))
        if row == 0 or keys != firsts[row - 1][1]:
            points = sizes.type_size(width / len(keys))
            rise = max(canvas.measure(key, points) for key in keys) * (0.72 if slanted else 1)
            above += rise + 0.15
    left += max(canvas.measure(name, _NAME) for name in rows) + 0.15
    beside = max(canvas.BAR, rise * slanted)
    figure = canvas.blank(
        left + len(columns) * (width + _BETWEEN) + beside,
        above + sum(heights) + len(rows) * _BETWEEN + _ABOVE * any(columns),
        palette,
        title=title,
        subtitle=subtitle,
        masked=any(alignment.has_masked for alignment in placed.values()),
    )
    grid = figure.subplots(len(rows), len(columns), squeeze=False, height_ratios=heights)
    scale = scale_of(list(placed.values()))
    turned: dict[str, Any] = {"rotation": 90}
    if slanted:
        turned = {"rotation": 45, "ha": "left", "va": "baseline", "rotation_mode": "anchor"}
    for (row, column), axes in np.ndenumerate(grid):
        if (row, column) not in placed:
            axes.remove()
            continue
        drawn = canvas.paint(axes, placed[row, column].masked, palette, scale)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        queries, keys = short[row, column]
        if (row - 1, column) not in short or short[row - 1, column][1] != keys:
            axes.xaxis.tick_top()
            points = sizes.type_size(width / len(keys))
            canvas.write_words(axes.xaxis, keys, width, points, palette, **turned)
        if (row, column - 1) not in short:
            points = sizes.type_size(heights[row] / len(queries))
            canvas.write_words(axes.yaxis, queries, heights[row], points, palette)
            name = canvas.style(palette, _NAME, palette.faint, text=rows[row])
            axes.set_ylabel(rows[row], rotation=0, ha="right", va="center", **name)
        if not any((line, column) in placed for line in range(row)):
            name = canvas.style(palette, _NAME, palette.faint, text=columns[column])
            axes.set_title(columns[column], loc="left", **name)
    canvas.draw_bar(figure, drawn, figure.axes, palette, "weight")
    return figure


def _write_numbers(axes: Axes, alignment: Alignment, palette: colours.Theme) -> None:
    low, high = alignment.scale()
    if low < 0 or high > 1:
        return
    for row, weights in enumerate(alignment.weights.tolist()):
        for column, weight in enumerate(weights):
            if number := percent(weight):
                ink = palette.ink_on((weight - low) / (high - low))
                style = {"va": "center_baseline", **canvas.style(palette, 7.5, ink)}
                axes.text(column + 0.5, row + 0.5, number, ha="center", **style)


def _name(kind: str, given: int | str) -> str:
    return canvas.label(given) if isinstance(given, str) else f"{kind} {given}"
