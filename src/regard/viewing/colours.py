"""One sequential colour scale for pictures, terminals and notebooks, in a light and a dark theme.

The scale starts near the background colour. A larger weight is darker on a light background and
brighter on a dark one. The anchors are so close that equal steps between them look equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Colour = tuple[float, float, float]

_WHITE, _BLACK = "#ffffff", "#080b10"


@dataclass(frozen=True)
class Theme:
    """The colours of a picture: background (paper), text (ink), and the anchors of its scale."""

    paper: str
    ink: str
    faint: str
    rule: str
    accent: str
    anchors: tuple[str, ...]

    def shade(self, share: float) -> Colour:
        """The colour at a share of the scale, from 0 to 1; values outside are clamped.

        >>> THEMES["light"].shade(0.0) == rgb(THEMES["light"].anchors[0])
        True
        """
        places = np.linspace(0, 1, len(self.anchors))
        channels = zip(*map(rgb, self.anchors), strict=True)
        red, green, blue = (float(np.interp(share, places, channel)) for channel in channels)
        return red, green, blue

    def ink_on(self, share: float) -> str:
        """The text colour on a shade: white or black, the one with more contrast."""
        shade = luminance(self.shade(share)) + 0.05
        over, under = 1.05 / shade, shade / (luminance(rgb(_BLACK)) + 0.05)
        return _WHITE if over > under else _BLACK

    def colormap(self) -> Colormap:
        """The scale for matplotlib; masked cells are transparent."""
        from matplotlib.colors import ListedColormap

        shades = ListedColormap([self.shade(step / 255) for step in range(256)])
        return shades.with_extremes(bad="none")


THEMES: dict[str, Theme] = {
    "light": Theme(
        paper="#fcfcfa",
        ink="#1d2530",
        faint="#68717d",
        rule="#d9dde1",
        accent="#c2410c",
        anchors=("#eff2f4", "#b9d5e6", "#6ba6cf", "#2c6fad", "#174680", "#0b2349"),
    ),
    "dark": Theme(
        paper="#12161c",
        ink="#e7eaee",
        faint="#98a2ae",
        rule="#333b45",
        accent="#fb923c",
        anchors=("#1b222b", "#17405f", "#1f6b94", "#3f9cc0", "#86cddd", "#e4f7f4"),
    ),
}


def theme(name: str) -> Theme:
    """The theme of this name; a ValueError if there is none."""
    if name not in THEMES:
        raise ValueError(f"unknown theme {name!r}: choose from {', '.join(THEMES)}")
    return THEMES[name]


def rgb(colour: str) -> Colour:
    """'#rrggbb' as red, green and blue from 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def hexadecimal(colour: Colour) -> str:
    """Red, green and blue from 0 to 1 as '#rrggbb'."""
    return "#" + "".join(f"{round(part * 255):02x}" for part in colour)


def luminance(colour: Colour) -> float:
    """The relative luminance of a colour, from 0 to 1 (WCAG 2.2)."""
    red, green, blue = (_linear(part) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
