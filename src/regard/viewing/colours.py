"""One sequential colour scale for pictures, terminal and page, in a light and a dark theme.

The scale starts near the background colour. A larger weight is darker on a light background and
brighter on a dark one. Colours between the anchors are interpolated in OKLab (Björn Ottosson,
2020), where equal steps look equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap

ThemeName = Literal["light", "dark"]
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
        place = min(max(share, 0.0), 1.0) * (len(self.anchors) - 1)
        left = min(int(place), len(self.anchors) - 2)
        part = place - left
        if part in (0.0, 1.0):
            return rgb(self.anchors[left + int(part)])
        before, after = (_to_oklab(rgb(anchor)) for anchor in self.anchors[left : left + 2])
        return _from_oklab(tuple(a + part * (b - a) for a, b in zip(before, after, strict=True)))

    def ink_on(self, share: float) -> str:
        """The text colour on a shade: white or black, the one with more contrast."""
        shade = luminance(self.shade(share)) + 0.05
        over, under = 1.05 / shade, shade / (luminance(rgb(_BLACK)) + 0.05)
        return _WHITE if over > under else _BLACK

    def colormap(self) -> ListedColormap:
        """The scale for matplotlib; masked cells are transparent."""
        from matplotlib.colors import ListedColormap

        return ListedColormap([self.shade(step / 255) for step in range(256)], bad="none")


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


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def _gamma(part: float) -> float:
    part = min(max(part, 0.0), 1.0)
    return part * 12.92 if part <= 0.0031308 else float(1.055 * part ** (1 / 2.4) - 0.055)


def _to_oklab(colour: Colour) -> Colour:
    r, g, b = (_linear(part) for part in colour)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def _from_oklab(colour: tuple[float, ...]) -> Colour:
    lightness, a, b = colour
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        _gamma(4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short),
        _gamma(-1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short),
        _gamma(-0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short),
    )
