"""An alignment as a heat map: queries down, keys across, the words of both around it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from regard.viewing import colours, figures
from regard.viewing.labels import visible
from regard.viewing.lettering import (
    GAP,
    HATCH,
    MASKED,
    fitted,
    label,
    measure,
    style,
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
_SAID = 0.095
EDGE, BAR, NOTE = 0.22, 0.11, 0.18  # inches


def heat_map(alignment: Alignment, theme: str = "light", *, numbers: bool = True) -> Figure:
    """Draw an alignment as a matplotlib figure; `figures.save` writes it to a file.

    Cells of equal size; long sentences have smaller ones, until words could not be read: then the
    figure grows, up to 24 inches, from where on words are left out. The colour scale starts at 0
    and ends at a round number, which its bar shows. Masked cells are hatched.

    Args:
        alignment: what to draw.
        theme: "light" or "dark".
        numbers: write weights of 10% and more into the cells, in percent, where there is room.

    Returns:
        The figure, with its facecolour set.

    Raises:
        ValueError: there is no such theme.
    """
    from regard.viewing.displayed import DisplayedFigure

    look = colours.theme(theme)
    with figures.quiet():
        layout = HeatMapLayout.of(alignment)
        figure = DisplayedFigure(figsize=(layout.width, layout.height), facecolor=look.paper)
        axes = figure.add_axes(
            layout.box(layout.left, layout.bottom, layout.grid_width, layout.grid_height)
        )
        paint(axes, alignment, look, alignment.scale())
        inches = (layout.grid_width, layout.grid_height)
        write_queries(axes, layout.queries, inches, layout.query_type, look)
        write_keys(axes, layout.keys, inches, layout.key_type, look, slanted=layout.slanted)
        if numbers and max(alignment.weights.shape) <= _MOST_NUMBERED:
            _write_numbers(axes, alignment, look)
        write_title(figure, alignment.title, look)
        if alignment.has_masked:
            write_note(figure, MASKED, look)
        beside = layout.left + layout.grid_width + EDGE
        bar_height = min(layout.grid_height, 2.4)
        top = layout.bottom + layout.grid_height - bar_height
        draw_bar(figure.add_axes(layout.box(beside, top, BAR, bar_height)), look, alignment.scale())
    return figure


def paint(
    axes: Axes, alignment: Alignment, look: colours.Theme, scale: tuple[float, float]
) -> None:
    """The cells alone: tiles with a hairline of paper between them, or an image of many."""
    from matplotlib.colors import ListedColormap

    rows, columns = alignment.weights.shape
    shades = ListedColormap([look.shade(step / 255) for step in range(256)], bad="none")
    colouring: dict[str, Any] = {"cmap": shades, "vmin": scale[0], "vmax": scale[1]}
    if rows * columns <= _MOST_TILES:
        width = 0.8 if max(rows, columns) <= 24 else 0.25
        tiles: dict[str, Any] = {"edgecolors": look.paper, "linewidth": width, "antialiased": True}
        axes.pcolormesh(alignment.masked, **colouring, **tiles)
    else:
        place = (0, columns, 0, rows)
        axes.imshow(
            alignment.masked, **colouring, origin="lower", extent=place, interpolation="nearest"
        )
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[], aspect="auto")
    axes.patch.set(facecolor=look.paper, edgecolor=look.rule, hatch=HATCH, linewidth=0)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_bar(axes: Axes, look: colours.Theme, scale: tuple[float, float]) -> None:
    """The colour scale with its ends: percent where weights are shares, else the plain numbers."""
    low, high = scale
    steps = 128
    axes.set(xlim=(0, 1), ylim=(low, high), xticks=[])
    edges = [low + (high - low) * step / steps for step in range(steps + 1)]
    for step, (start, stop) in enumerate(pairwise(edges)):
        axes.axhspan(start, stop, color=look.shade(step / (steps - 1)), linewidth=0)
    shares = low >= 0 and high <= 1
    ticks = [low + (high - low) * part / 2 for part in range(3)]
    names = [f"{100 * tick:g}%" if shares else f"{tick:g}" for tick in ticks]
    axes.yaxis.tick_right()
    axes.set_yticks(ticks, labels=names, **style(look, 7.5, look.faint))
    axes.tick_params(length=0, pad=3)
    axes.set_title("weight", loc="left", pad=9, **style(look, 7.5, look.faint))
    for side in axes.spines.values():
        side.set_visible(False)


@dataclass(frozen=True)
class HeatMapLayout:
    """Where everything goes, in inches from the lower left corner."""

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
            min(_LARGEST_TYPE, max(_SMALLEST_TYPE, 72 * cell * 0.72)) for cell in (height, width)
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

    def box(
        self, left: float, bottom: float, width: float, height: float
    ) -> tuple[float, float, float, float]:
        """Inches as the shares of the figure that matplotlib wants."""
        return left / self.width, bottom / self.height, width / self.width, height / self.height


def _cell(count: int) -> float:
    """The side of a cell, of so many in a row."""
    return min(_CELL, max(_LONGEST_SIDE / count, _SMALLEST_CELL), _LIMIT / count)


def _write_numbers(axes: Axes, alignment: Alignment, look: colours.Theme) -> None:
    low, high = alignment.scale()
    if low < 0 or high > 1:
        return
    for row, weights in enumerate(alignment.weights.tolist()):
        for column, weight in enumerate(weights):
            if weight >= _SAID:
                ink = look.ink_on((weight - low) / (high - low))
                centred = {"ha": "center", "va": "center_baseline", **style(look, 7.5, ink)}
                axes.text(column + 0.5, row + 0.5, f"{100 * weight:.0f}", **centred)


def write_title(figure: Figure, title: str, look: colours.Theme, subtitle: str = "") -> None:
    """The title in the upper left corner and what is below it, cropped to the figure's width."""
    width, height = figure.get_size_inches()
    at = EDGE / height
    for text, points, colour in ((title, 11.0, look.ink), (subtitle, 9.0, look.faint)):
        shown = fitted(text, width - 2 * EDGE)
        placed = {"ha": "left", "va": "top", **style(look, points, colour, text=shown)}
        strong = "bold" if points == 11.0 else "normal"
        figure.text(EDGE / width, 1 - at, shown, fontweight=strong, **placed)
        at += 0.24 / height


def write_note(figure: Figure, text: str, look: colours.Theme) -> None:
    """A line in the lower left corner."""
    width, height = figure.get_size_inches()
    low = {"ha": "left", "va": "bottom", **style(look, 7.5, look.faint, text=text)}
    figure.text(EDGE / width, 0.5 * EDGE / height, text, **low)
