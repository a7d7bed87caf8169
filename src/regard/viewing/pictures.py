"""Alignments as heat maps: one, one with links, or one for each layer and head. Queries go down, keys across."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.viewing import canvas, colours
from regard.viewing.alignment import Alignment
from regard.viewing.labels import percent

_MOST_NUMBERED = 16
_NAME, _ABOVE = 8.5, 0.2  # of the name of a layer or head: its size in points, its room in inches
_LEAST, _BETWEEN = 0.5, 0.1  # inches of a panel, and between two


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

    def panel(self, words: int, panels: int) -> float:
        """The side of a panel with so many words, in a row of so many panels."""
        ordinary = min(self.side, words * self.cell, self.together / panels)
        return max(_LEAST, min(max(ordinary, words * self.smallest), self.limit / panels))

    def type_size(self, cell: float) -> float:
        smallest, largest = self.points
        return min(largest, max(smallest, 72 * cell * 0.72))


_ALONE = _Sizes(0.40, 11.0, 11.0, 0.1, 24.0, (6.0, 10.0), 24)
_MANY = _Sizes(0.18, 2.3, 16.0, 0.09, 30.0, (5.5, 7.5), 14)


def heat_map(alignment: Alignment, theme: str = "light") -> Figure:
    """Draw an alignment as a matplotlib figure; `figures.save` writes it to a file.

    Long sentences get smaller cells, as long as words can be read. Then the figure grows up to 24
    inches. For longer sentences some words are left out. The colour scale ends at a round number.
    Masked cells are hatched. Weights of 10% and more are written into the cells, in percent, if there is room.

    Raises:
        ValueError: a theme other than "light" and "dark".
    """
    palette = colours.theme(theme)
    figure = _draw({"": {"": alignment}}, _ALONE, palette, alignment.title)
    if max(alignment.weights.shape) <= _MOST_NUMBERED:
        _write_numbers(figure.axes[0], alignment, palette)
    return figure


def linked(alignment: Alignment, links: Iterable[tuple[int, int]]) -> Figure:
    """A heat map of target words (down) over source words (across), with a frame around each cell of a link.

    Links are (source, target) positions, from 0.
    """
    figure = heat_map(alignment)
    frame: dict[str, Any] = {"fill": False, "edgecolor": colours.THEMES["light"].accent}
    for source, target in links:
        cell = Rectangle((source, target), 1, 1, clip_on=False, linewidth=1.6, **frame)
        figure.axes[0].add_patch(cell)
    return figure


def small_multiples(
    layers: Mapping[int, Mapping[int, Alignment]],
    theme: str = "light",
    *,
    title: str = "",
    subtitle: str = "",
) -> Figure:
    """Draw one attention of a sentence, layers down and heads across, on one colour scale.

    Equal colours mean equal weights. Words are written to the left of the first head and above the first layer.

    Args:
        layers: for each layer an alignment of each head, by their numbers; all with the same words.
        subtitle: a smaller line below the title, such as the model and the attention.

    Raises:
        ValueError: a theme other than "light" and "dark".
    """
    panels = {
        f"layer {layer}": {f"head {head}": one for head, one in heads.items()}
        for layer, heads in layers.items()
    }
    return _draw(panels, _MANY, colours.theme(theme), title, subtitle)


def _draw(
    panels: Mapping[str, Mapping[str, Alignment]],
    sizes: _Sizes,
    palette: colours.Theme,
    title: str,
    subtitle: str = "",
) -> Figure:
    """Alignments with the same words, by the names of rows and columns."""
    rows, columns = list(panels), list(next(iter(panels.values())))
    alignments = [alignment for row in panels.values() for alignment in row.values()]
    queries = [canvas.label(word, sizes.longest_word) for word in alignments[0].queries]
    keys = [canvas.label(word, sizes.longest_word) for word in alignments[0].keys]
    width, height = sizes.panel(len(keys), len(columns)), sizes.panel(len(queries), len(rows))
    across, down = sizes.type_size(width / len(keys)), sizes.type_size(height / len(queries))
    slanted = width / len(keys) > 0.2
    turned: dict[str, Any] = {"rotation": 90}
    if slanted:
        turned = {"rotation": 45, "ha": "left", "va": "baseline", "rotation_mode": "anchor"}
    rise = max(canvas.measure(key, across) for key in keys) * (0.72 if slanted else 1)
    margin = max(canvas.measure(query, down) for query in queries)
    margin += max(canvas.measure(name, _NAME) for name in rows) + 0.15
    figure = canvas.blank(
        margin + len(columns) * (width + _BETWEEN) + max(canvas.BAR, rise * slanted),
        rise + 0.15 + len(rows) * (height + _BETWEEN) + _ABOVE * any(columns),
        palette,
        title=title,
        subtitle=subtitle,
        masked=any(alignment.has_masked for alignment in alignments),
    )
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    scale = 0.0, max(alignment.top for alignment in alignments)
    for axes, alignment in zip(grid.flat, alignments, strict=True):
        image = canvas.paint(axes, alignment.masked, palette, scale)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    name = canvas.style(palette, _NAME, palette.faint)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.xaxis.tick_top()
        canvas.write_words(axes.xaxis, keys, width, across, palette, **turned)
        axes.set_title(column, loc="left", **name)
    for axes, row in zip(grid[:, 0], rows, strict=True):
        canvas.write_words(axes.yaxis, queries, height, down, palette)
        axes.set_ylabel(row, rotation=0, ha="right", va="center", **name)
    canvas.draw_bar(figure, image, figure.axes, palette, "weight")
    return figure


def _write_numbers(axes: Axes, alignment: Alignment, palette: colours.Theme) -> None:
    for row, weights in enumerate(alignment.weights.tolist()):
        for column, weight in enumerate(weights):
            if number := percent(weight):
                ink = palette.ink_on(weight / alignment.top)
                style = {"va": "center_baseline", **canvas.style(palette, 7.5, ink)}
                axes.text(column + 0.5, row + 0.5, number, ha="center", **style)
