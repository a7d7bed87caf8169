"""The parts that all figures share: title and note, cells, words beside them, the colour scale, plain axes.

Text is written without markup, in installed fonts, and cropped to the available space.
"""

import functools
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.transforms import Bbox

from regard.viewing import colours, figures, fonts
from regard.viewing.labels import shorten, visible

EDGE, BAR = 0.22, 0.9  # inches: of the margin, and of the colour scale with its labels
_MASKED = "hatched: masked, may not be read"
_TITLE, _LINE, _NOTE = 0.3, 0.24, 0.2  # inches
_MOST_TILES = 2500  # above, cells are an image: thousands of separate tiles are slow to open
_TALLEST_BAR = 2.4  # inches
_LONGEST_LABEL = 24


class DisplayedFigure(Figure):
    """A matplotlib figure that a notebook displays without pyplot and without `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        return figures.render(self, "png", dots_per_inch=100)

    def get_tightbbox(self, *_: Any, **__: Any) -> Bbox:
        """The whole figure: `%matplotlib inline` cuts pictures to this box, which would lose the title."""
        return self.bbox_inches


def blank(
    width: float,
    height: float,
    palette: colours.Theme,
    *,
    title: str = "",
    subtitle: str = "",
    masked: bool = False,
) -> Figure:
    """An empty figure with so many inches for its axes, a title above them and a note on masked cells below."""
    above, below = _TITLE * bool(title) + _LINE * bool(subtitle), _NOTE * masked
    width = max(width, min(measure(visible(title), 11.0, "bold"), 6.0)) + 2 * EDGE
    height += 2 * EDGE + above + below
    figure = DisplayedFigure((width, height), facecolor=palette.paper, layout="constrained")
    margin, bottom, over = EDGE / width, (EDGE + below) / height, (EDGE + above) / height
    engine: Any = figure.get_layout_engine()
    rect = (margin, bottom, 1 - 2 * margin, 1 - bottom - over)
    engine.set(rect=rect, w_pad=0.05, h_pad=0.05)
    place: dict[str, Any] = {"x": margin, "ha": "left"}
    text, top = fitted(title, width - 2 * EDGE), 1 - EDGE / height
    bold = {"fontweight": "bold", **style(palette, 11, text=text)}
    figure.suptitle(text, y=top, va="top", **place, **bold)
    text = fitted(subtitle, width - 2 * EDGE)
    text_style = style(palette, 9, palette.faint, text=text)
    figure.text(y=top - _LINE / height, s=text, va="top", **place, **text_style)
    text_style = style(palette, 7.5, palette.faint)
    figure.supxlabel(_MASKED * masked, y=0.5 * EDGE / height, va="bottom", **place, **text_style)
    for text_artist in figure.texts:
        text_artist.set_in_layout(False)
    return figure


def paint(
    axes: Axes,
    cells: np.ndarray,
    palette: colours.Theme,
    scale: tuple[float, float],
    extent: tuple[float, ...] | None = None,
) -> Any:
    """Draw a masked array, its first row on top: as separate tiles, or as an image if there are many cells."""
    rows, columns = cells.shape
    colouring: dict[str, Any] = {"cmap": palette.colormap(), "vmin": scale[0], "vmax": scale[1]}
    axes.patch.set(facecolor=palette.paper, edgecolor=palette.rule, hatch="/////", linewidth=0)
    if extent is not None or rows * columns > _MOST_TILES:
        place: Any = (0, columns, rows, 0) if extent is None else extent
        image: Any = axes.imshow(
            cells, **colouring, extent=place, aspect="auto", interpolation="nearest"
        )
    else:
        width = 0.8 if max(rows, columns) <= 24 else 0.25
        tiles: dict[str, Any] = {"edgecolors": palette.paper, "linewidth": width}
        image = axes.pcolormesh(cells, **colouring, **tiles, antialiased=True)
        axes.set(ylim=(rows, 0))
    return image


def draw_bar(
    figure: Figure, image: Any, panels: Iterable[Axes], palette: colours.Theme, label: str
) -> None:
    """Draw the colour scale of panels, in percent if the weights are between 0 and 1."""
    low, high = image.get_clim()
    ticks = [low, (low + high) / 2, high]
    height = figure.get_size_inches()[1] - 2 * EDGE
    bar = figure.colorbar(
        image,
        ax=list(panels),
        ticks=ticks,
        shrink=min(1.0, _TALLEST_BAR / height),
        anchor=(0.0, 1.0),
        aspect=min(_TALLEST_BAR, height) / 0.11,
    )
    shares = low >= 0 and high <= 1
    bar.set_ticklabels([f"{100 * tick:g}%" if shares else f"{tick:g}" for tick in ticks])
    bar.set_label(label, **style(palette, 7.5, palette.faint))
    bar.ax.tick_params(length=0, labelsize=7.5, labelcolor=palette.faint)
    bar.outline.set_visible(False)


def write_words(
    axis: Axis,
    words: Sequence[str],
    inches: float,
    points: float,
    palette: colours.Theme,
    start: float = 0.5,
    colour: str | None = None,
    **properties: Any,
) -> None:
    """Write a word beside each row or column, or beside every second, third ... if those are small.

    The first word is at `start`, the next one further on, and so on; `how` are properties of the text.
    """
    step = ceil(points * len(words) / (72 * inches))
    places = range(0, len(words), step)
    axis.set_ticks([start + place for place in places], [words[place] for place in places])
    axis.set_tick_params(length=0)
    for tick in axis.get_ticklabels():
        tick.set(**properties, **style(palette, points, colour, text=tick.get_text()))


def style(
    palette: colours.Theme, size: float, colour: str | None = None, *, text: str = ""
) -> dict[str, Any]:
    """The style of a text: no mathematical markup ($), in fonts that have its characters."""
    return {
        "fontsize": size,
        "color": colour or palette.ink,
        "fontfamily": list(fonts.families(text)),
        "parse_math": False,
        "usetex": False,
    }


def plain_axes(axes: Axes, palette: colours.Theme, title: str) -> None:
    """Axes with a title, horizontal grid lines and no frame but the line below."""
    axes.set_title(title, loc="left", pad=7, **style(palette, 9.5, text=title))
    axes.set_facecolor(palette.paper)
    axes.grid(axis="y", color=palette.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, labelcolor=palette.faint)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(palette.rule)


def legend(axes: Axes, palette: colours.Theme, place: Any = "upper right") -> None:
    axes.legend(frameon=False, fontsize=8, labelcolor=palette.faint, loc=place)


def label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """A word as a label of a row or column."""
    return shorten(visible(text), longest)


@functools.lru_cache(4096)
def measure(text: str, points: float, weight: str = "normal") -> float:
    """The width of a text in inches, in the fonts that `style` chooses."""
    if not text:
        return 0.0
    font = FontProperties(family=list(fonts.families(text)), size=points, weight=weight)
    renderer: Any = RendererAgg
    with figures.quiet():
        dots = renderer(1, 1, 300).get_text_width_height_descent(text, font, ismath=False)
    return float(dots[0]) / 300


def fitted(title: str, inches: float) -> str:
    """A visible title, cropped to a width in bold type of 11 points."""
    full_title = title = visible(title)
    columns = len(full_title)
    while measure(title, 11.0, "bold") > inches and columns > 1:
        columns = int(columns * 0.9)
        title = shorten(full_title, columns)
    return title
