"""Text in figures: without markup, in installed fonts, cropped to the available space."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from regard.viewing import colours, fonts
from regard.viewing.labels import shorten, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

GAP = 0.08  # inches between a word and its row or column
HATCH, MASKED = "/////", "hatched: masked, may not be read"
_LONGEST_LABEL = 24

Box = tuple[float, float, float, float]


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


def type_size(cell: float, smallest: float, largest: float) -> float:
    """The type size in points for the label of a cell of this height in inches."""
    return min(largest, max(smallest, 72 * cell * 0.72))


def plain_axes(axes: Axes, palette: colours.Theme) -> None:
    """Axes with horizontal grid lines and no frame but the line below."""
    axes.set_facecolor(palette.paper)
    axes.grid(axis="y", color=palette.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, labelcolor=palette.faint)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette.rule)


def legend(axes: Axes, palette: colours.Theme) -> None:
    axes.legend(frameon=False, fontsize=8, labelcolor=palette.faint, loc="upper right")


def as_shares(box: Box, width: float, height: float) -> Box:
    """Left, bottom, width and height in inches as shares of a figure of this size."""
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def label(text: str) -> str:
    """A word as a label of a row or column."""
    return shorten(visible(text), _LONGEST_LABEL)


@functools.lru_cache(4096)
def measure(text: str, points: float, weight: str = "normal") -> float:
    """The width of a text in inches, in the fonts that `style` chooses."""
    from matplotlib.backends import backend_agg
    from matplotlib.font_manager import FontProperties

    if not text:
        return 0.0
    font = FontProperties(family=list(fonts.families(text)), size=points, weight=weight)
    renderer: Any = backend_agg.RendererAgg
    dots = renderer(1, 1, 300).get_text_width_height_descent(text, font, ismath=False)
    return float(dots[0]) / 300


def fitted(title: str, inches: float) -> str:
    """A visible title, cropped to a width in bold type of 11 points."""
    whole = title = visible(title)
    columns = len(whole)
    while measure(title, 11.0, "bold") > inches and columns > 1:
        columns = int(columns * 0.9)
        title = shorten(whole, columns)
    return title


def write_queries(
    axes: Axes,
    words: Sequence[str],
    inches: tuple[float, float],
    points: float,
    palette: colours.Theme,
) -> None:
    """Write words to the left of the rows. One unit of the axes is one cell."""
    width, height = inches
    left = -GAP / width * _span(axes.get_xlim())
    for place in _said(len(words), height, points):
        own = style(palette, points, text=words[place])
        place_style = {"ha": "right", "va": "center_baseline", **own}
        axes.text(left, place + 0.5, words[place], **place_style)


def write_keys(
    axes: Axes,
    words: Sequence[str],
    inches: tuple[float, float],
    points: float,
    palette: colours.Theme,
    *,
    slanted: bool = True,
) -> None:
    """Write words above the columns, at 45 degrees if slanted, else vertically."""
    width, height = inches
    up = -GAP / height * _span(axes.get_ylim())
    angle: dict[str, Any] = {"rotation": 45 if slanted else 90, "rotation_mode": "anchor"}
    for place in _said(len(words), width, points):
        across = "baseline" if slanted else "center"
        own = style(palette, points, text=words[place])
        place_style = {**angle, "ha": "left", "va": across, **own}
        axes.text(place + 0.5, up, words[place], **place_style)


def _span(limits: tuple[float, float]) -> float:
    return abs(limits[1] - limits[0])


def _said(count: int, inches: float, points: float) -> range:
    """The positions whose words are written: all, or every second, third ... if cells are small."""
    step = 1
    while inches / count * step * 72 < points and step < count:
        step += 1
    return range(0, count, step)
