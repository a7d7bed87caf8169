"""An alignment as a heat map: queries down, keys across, with the words of both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from regard.viewing import colours, figures
from regard.viewing.labels import percent, visible
from regard.viewing.lettering import (
    GAP,
    HATCH,
    MASKED,
    Box,
    as_shares,
    fitted,
    label,
    measure,
    style,
    type_size,
    write_keys,
    write_queries,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.viewing.alignment import Alignment

_CELL, _LONGEST_SIDE = 0.40, 11.0  # inches
_SMALLEST_CELL, _LIMIT = 0.1, 24.0  # inches: room for a word that can be read, and of the grid
_LARGEST_TYPE, _SMALLEST_TYPE = 10.0, 6.0  # points
_MOST_TILES = 2500  # above, the grid is an image: thousands of separate tiles are slow to open
_MOST_NUMBERED = 16
EDGE, BAR, NOTE = 0.22, 0.11, 0.18  # inches


def heat_map(alignment: Alignment, theme: str = "light", *, numbers: bool = True) -> Figure:
    """Draw an alignment as a matplotlib figure; `figures.save` writes it to a file.

    Long sentences get smaller cells, as long as words can be read. Then the figure grows up to 24
    inches. For longer sentences some words are left out. The colour scale ends at a round number.
    Masked cells are hatched.

    Args:
        alignment: the weights to draw.
        theme: "light" or "dark".
        numbers: write weights of 10% and more into the cells, in percent, if there is room.

    Raises:
        ValueError: there is no such theme.
    """
    from regard.viewing.displayed import DisplayedFigure

    palette = colours.theme(theme)
    with figures.quiet():
        layout = HeatMapLayout.of(alignment)
        figure = DisplayedFigure(figsize=(layout.width, layout.height), facecolor=palette.paper)
        axes = figure.add_axes(
            layout.box(layout.left, layout.bottom, layout.grid_width, layout.grid_height)
        )
        paint(axes, alignment, palette, alignment.scale())
        inches = (layout.grid_width, layout.grid_height)
        write_queries(axes, layout.queries, inches, layout.query_type, palette)
        write_keys(axes, layout.keys, inches, layout.key_type, palette, slanted=layout.slanted)
        if numbers and max(alignment.weights.shape) <= _MOST_NUMBERED:
            _write_numbers(axes, alignment, palette)
        write_title(figure, alignment.title, palette)
        if alignment.has_masked:
            write_note(figure, MASKED, palette)
        beside = layout.left + layout.grid_width + EDGE
        bar_height = min(layout.grid_height, 2.4)
        top = layout.bottom + layout.grid_height - bar_height
        draw_bar(
            figure.add_axes(layout.box(beside, top, BAR, bar_height)), palette, alignment.scale()
        )
    return figure


def paint(
    axes: Axes, alignment: Alignment, palette: colours.Theme, scale: tuple[float, float]
) -> None:
    """Draw the cells: as separate tiles, or as an image if there are many."""
    rows, columns = alignment.weights.shape
    colouring: dict[str, Any] = {"cmap": palette.colormap(), "vmin": scale[0], "vmax": scale[1]}
    if rows * columns <= _MOST_TILES:
        width = 0.8 if max(rows, columns) <= 24 else 0.25
        tiles: dict[str, Any] = {
            "edgecolors": palette.paper,
            "linewidth": width,
            "antialiased": True,
        }
        axes.pcolormesh(alignment.masked, **colouring, **tiles)
    else:
        place = (0, columns, 0, rows)
        axes.imshow(
            alignment.masked, **colouring, origin="lower", extent=place, interpolation="nearest"
        )
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[], aspect="auto")
    axes.patch.set(facecolor=palette.paper, edgecolor=palette.rule, hatch=HATCH, linewidth=0)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_bar(axes: Axes, palette: colours.Theme, scale: tuple[float, float]) -> None:
    """Draw the colour scale, in percent if the weights are between 0 and 1."""
    low, high = scale
    steps = 128
    axes.set(xlim=(0, 1), ylim=(low, high), xticks=[])
    edges = [low + (high - low) * step / steps for step in range(steps + 1)]
    for step, (start, stop) in enumerate(pairwise(edges)):
        axes.axhspan(start, stop, color=palette.shade(step / (steps - 1)), linewidth=0)
    shares = low >= 0 and high <= 1
    ticks = [low + (high - low) * part / 2 for part in range(3)]
    names = [f"{100 * tick:g}%" if shares else f"{tick:g}" for tick in ticks]
    axes.yaxis.tick_right()
    axes.set_yticks(ticks, labels=names, **style(palette, 7.5, palette.faint))
    axes.tick_params(length=0, pad=3)
    axes.set_title("weight", loc="left", pad=9, **style(palette, 7.5, palette.faint))
    for side in axes.spines.values():
        side.set_visible(False)


@dataclass(frozen=True)
class HeatMapLayout:
    """Positions and sizes in inches, from the lower left corner."""

    queries: list[str]
    keys: list[str]
    grid_width: float
    grid_height: float
    left: float
    above: float
    slanted: bool
    width: float
    title_height: float
    query_type: float
    key_type: float
    bottom: float

    @classmethod
    def of(cls, alignment: Alignment) -> HeatMapLayout:
        rows, columns = alignment.weights.shape
        height, width = map(_cell, (rows, columns))
        query_type, key_type = (
            type_size(cell, _SMALLEST_TYPE, _LARGEST_TYPE) for cell in (height, width)
        )
        queries, keys = [label(q) for q in alignment.queries], [label(k) for k in alignment.keys]
        longest_query = max(measure(query, query_type) for query in queries)
        extents = [measure(key, key_type) for key in keys]
        slanted = width > 0.2
        rise = 0.72 * max(extents) + 0.12 if slanted else max(extents)
        lean = max(
            0.72 * extent - (columns - place - 0.5) * width for place, extent in enumerate(extents)
        )
        beside = max(EDGE + BAR + 0.45, lean + 0.1 if slanted else 0.0)
        title = measure(visible(alignment.title), 11.0, "bold")
        left = EDGE + longest_query + GAP
        return cls(
            queries,
            keys,
            columns * width,
            rows * height,
            left,
            max(GAP + rise, 0.34),
            slanted,
            max(min(title, 6.0) + 2 * EDGE, left + columns * width + beside + EDGE),
            0.42 if alignment.title else 0.0,
            query_type,
            key_type,
            EDGE + (NOTE if alignment.has_masked else 0.0),
        )

    @property
    def height(self) -> float:
        return self.bottom + self.grid_height + self.above + self.title_height + EDGE

    def box(self, left: float, bottom: float, width: float, height: float) -> Box:
        return as_shares((left, bottom, width, height), self.width, self.height)


def _cell(count: int) -> float:
    """The side of a cell, for this number of cells in a row."""
    return min(_CELL, max(_LONGEST_SIDE / count, _SMALLEST_CELL), _LIMIT / count)


def _write_numbers(axes: Axes, alignment: Alignment, palette: colours.Theme) -> None:
    low, high = alignment.scale()
    if low < 0 or high > 1:
        return
    for row, weights in enumerate(alignment.weights.tolist()):
        for column, weight in enumerate(weights):
            if number := percent(weight):
                ink = palette.ink_on((weight - low) / (high - low))
                centred = {"ha": "center", "va": "center_baseline", **style(palette, 7.5, ink)}
                axes.text(column + 0.5, row + 0.5, number, **centred)


def write_title(figure: Figure, title: str, palette: colours.Theme, subtitle: str = "") -> None:
    """Write title and subtitle in the upper left corner, cropped to the figure's width."""
    width, height = figure.get_size_inches()
    at = EDGE / height
    for text, points, colour in ((title, 11.0, palette.ink), (subtitle, 9.0, palette.faint)):
        shown = fitted(text, width - 2 * EDGE)
        placed = {"ha": "left", "va": "top", **style(palette, points, colour, text=shown)}
        strong = "bold" if points == 11.0 else "normal"
        figure.text(EDGE / width, 1 - at, shown, fontweight=strong, **placed)
        at += 0.24 / height


def write_note(figure: Figure, text: str, palette: colours.Theme) -> None:
    """Write a line in the lower left corner."""
    width, height = figure.get_size_inches()
    low = {"ha": "left", "va": "bottom", **style(palette, 7.5, palette.faint, text=text)}
    figure.text(EDGE / width, 0.5 * EDGE / height, text, **low)
