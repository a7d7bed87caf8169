"""A small heat map for each layer and head, layers down and heads across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.viewing import colours, figures
from regard.viewing.alignment import Alignment, scale_of
from regard.viewing.labels import shorten, visible
from regard.viewing.lettering import (
    GAP,
    MASKED,
    Box,
    as_shares,
    label,
    measure,
    style,
    type_size,
    write_keys,
    write_queries,
)
from regard.viewing.pictures import BAR, EDGE, NOTE, draw_bar, paint, write_note, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELL, _SIDE = 0.18, 2.3  # inches: of a cell, and of the longest side of a panel
_SMALLEST_CELL = 0.09  # inches: room for a word that can be read, for which panels grow
_WIDEST, _TALLEST, _LIMIT = 15.0, 18.0, 30.0  # inches, of all panels together; grown
_BETWEEN = 0.14
_NAME = 8.5  # points
_SMALLEST_TYPE, _LARGEST_TYPE = 5.5, 7.5
_LONGEST_WORD = 14

Panel = tuple[int | str, int | str, Alignment]


def small_multiples(
    panels: Sequence[Panel], theme: str = "light", *, title: str = "", subtitle: str = ""
) -> Figure:
    """Draw many alignments on one colour scale, so that equal colours mean equal weights.

    Words are written to the left of the first head and above the first layer. A layer with other
    keys than the layer above has words of its own.

    Args:
        panels: (layer, head, alignment) in the order to draw; a number is shown as "layer 0" or
            "head 0", a string as it is.
        theme: "light" or "dark".
        title: the title of the picture.
        subtitle: a smaller line below the title, such as the model and the attention.

    Raises:
        ValueError: there are no panels, two of one layer and head, or no such theme.
    """
    from regard.viewing.displayed import DisplayedFigure

    palette = colours.theme(theme)
    with figures.quiet():
        layout = _PanelLayout.of(panels, heading=0.4 * bool(title) + 0.24 * bool(subtitle))
        figure = DisplayedFigure(figsize=(layout.width, layout.height), facecolor=palette.paper)
        scale = scale_of([alignment for _, _, alignment in panels])
        for (layer, head), alignment in layout.placed.items():
            axes = figure.add_axes(layout.box(layer, head))
            paint(axes, alignment, palette, scale)
            layout.write_around(axes, layer, head, palette)
        bar_height = min(1.6, layout.height - 2 * EDGE - 0.4)
        left, top = layout.width - EDGE - BAR - 0.42, layout.top
        place = (left, layout.height - top - bar_height, BAR, bar_height)
        draw_bar(figure.add_axes(as_shares(place, layout.width, layout.height)), palette, scale)
        if title or subtitle:
            write_title(figure, title, palette, subtitle)
        if layout.masked:
            write_note(figure, MASKED, palette)
    return figure


@dataclass(frozen=True)
class _PanelLayout:
    """Positions and sizes of the panels in inches; `top` is measured downwards."""

    layers: list[int | str]
    heads: list[int | str]
    placed: dict[tuple[int, int], Alignment]
    panel_widths: float
    panel_heights: list[float]
    above: list[float]
    left: float
    names: float
    top: float
    masked: bool

    @classmethod
    def of(cls, panels: Sequence[Panel], *, heading: float) -> _PanelLayout:
        if not panels:
            raise ValueError("no panels to draw: pass at least one (layer, head, alignment)")
        layers = list(dict.fromkeys(layer for layer, _, _ in panels))
        heads = list(dict.fromkeys(head for _, head, _ in panels))
        placed: dict[tuple[int, int], Alignment] = {}
        for layer, head, alignment in panels:
            place = (layers.index(layer), heads.index(head))
            if place in placed:
                raise ValueError(f"two panels for {_name('layer', layer)}, {_name('head', head)}")
            placed[place] = alignment
        firsts = [_first(placed, row) for row in range(len(layers))]
        most_keys = max(len(alignment.keys) for alignment in firsts)
        width = max(0.5, _side(most_keys, _WIDEST, len(heads)))
        heights = [
            max(0.4, _side(len(alignment.queries), _TALLEST, len(layers))) for alignment in firsts
        ]
        above = []
        for row, alignment in enumerate(firsts):
            new = row == 0 or alignment.keys != firsts[row - 1].keys
            points = _type(width / len(alignment.keys))
            words = max(measure(_short(key), points) for key in alignment.keys) if new else 0.0
            above.append(words + 2 * GAP if new else _BETWEEN)
        words = max(
            measure(_short(query), _type(heights[row] / len(alignment.queries)))
            for row, alignment in enumerate(firsts)
            for query in alignment.queries
        )
        names = max(measure(_name("layer", layer), _NAME) for layer in layers)
        left = EDGE + names + 0.2 + words + GAP
        top = EDGE + heading + 0.22
        masked = any(alignment.has_masked for alignment in placed.values())
        return cls(layers, heads, placed, width, heights, above, left, names, top, masked)

    @property
    def width(self) -> float:
        panels = len(self.heads) * (self.panel_widths + _BETWEEN)
        return self.left + panels + EDGE + BAR + 0.42

    @property
    def height(self) -> float:
        return self.top + sum(self.above) + sum(self.panel_heights) + EDGE + NOTE * self.masked

    def box(self, row: int, column: int) -> Box:
        left = self.left + column * (self.panel_widths + _BETWEEN)
        down = self.top + sum(self.above[: row + 1]) + sum(self.panel_heights[: row + 1])
        height = self.panel_heights[row]
        inches = (left, self.height - down, self.panel_widths, height)
        return as_shares(inches, self.width, self.height)

    def write_around(self, axes: Axes, row: int, column: int, palette: colours.Theme) -> None:
        """Write the words and the names of layer and head beside a panel at the edge."""
        alignment = self.placed[row, column]
        inches = (self.panel_widths, self.panel_heights[row])
        if self.above[row] > _BETWEEN:
            keys = [_short(key) for key in alignment.keys]
            write_keys(axes, keys, inches, _type(inches[0] / len(keys)), palette, slanted=False)
        if column == min(place for line, place in self.placed if line == row):
            queries = [_short(query) for query in alignment.queries]
            write_queries(axes, queries, inches, _type(inches[1] / len(queries)), palette)
            figure = axes.figure
            centre = axes.get_position().y0 + axes.get_position().height / 2
            name = _name("layer", self.layers[row])
            own = style(palette, _NAME, palette.faint, text=name)
            middle = {"ha": "left", "va": "center_baseline", **own}
            figure.text(EDGE / self.width, centre, name, **middle)
        if row == min(line for line, place in self.placed if place == column):
            name = _name("head", self.heads[column])
            up = (self.above[row] + 0.04) / inches[1] * len(alignment.queries)
            over = {
                "ha": "left",
                "va": "baseline",
                **style(palette, _NAME, palette.faint, text=name),
            }
            axes.text(0, -up, name, **over)


def _side(words: int, together: float, panels: int) -> float:
    """The side of a panel with this number of words, of this number of panels in a row."""
    ordinary = min(_SIDE, words * _CELL, together / panels)
    return min(max(ordinary, words * _SMALLEST_CELL), max(ordinary, _LIMIT / panels))


def _first(placed: dict[tuple[int, int], Alignment], row: int) -> Alignment:
    return placed[min(place for place in placed if place[0] == row)]


def _name(kind: str, given: int | str) -> str:
    return shorten(visible(given), 24) if isinstance(given, str) else f"{kind} {given}"


def _short(word: str) -> str:
    return shorten(label(word), _LONGEST_WORD)


def _type(cell: float) -> float:
    return type_size(cell, _SMALLEST_TYPE, _LARGEST_TYPE)
