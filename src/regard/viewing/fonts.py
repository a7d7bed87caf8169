"""Installed fonts that have the characters of a text."""

from __future__ import annotations

import functools
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST = "DejaVu Sans"  # comes with matplotlib
_PREFERRED = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Emoji",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
)
_NO_GLYPH = {"Cc", "Cf", "Mn", "Me", "Zs", "Zl", "Zp"}  # categories that need no glyph
_NAMED = 5


@functools.lru_cache(4096)
def families(text: str) -> tuple[str, ...]:
    """DejaVu Sans, then families with the characters that it lacks, preferred families first."""
    names, uncovered = [FIRST], _needed(text) - _characters(FIRST)
    for family in _installed() if uncovered else ():
        covered = uncovered & _characters(family)
        if covered:
            names.append(family)
            uncovered -= covered
        if not uncovered:
            break
    return tuple(names)


def missing(figure: Figure) -> str:
    """A message about the characters of a figure that no installed font has; "" if there are none."""
    from matplotlib.text import Text

    lacking: dict[str, None] = {}
    for text in dict.fromkeys(each.get_text() for each in figure.findobj(Text)):
        uncovered = _needed(text).difference(*map(_characters, families(text)))
        lacking |= dict.fromkeys(each for each in text if ord(each) in uncovered)
    named = [f"{each} (U+{ord(each):04X})" for each in lacking]
    if not named:
        return ""
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"no installed font has {', '.join(named[:_NAMED])}{more}: they are drawn as boxes;"
        " install a font that has them, such as Noto Sans CJK or Noto Emoji, or write an .svg"
    )


def _needed(text: str) -> frozenset[int]:
    return frozenset(ord(each) for each in text if unicodedata.category(each) not in _NO_GLYPH)


@functools.cache
def _installed() -> dict[str, str]:
    """The file of the upright font of normal weight of each family, preferred families first."""
    from matplotlib import font_manager

    upright = {
        font.name: font.fname
        for font in font_manager.fontManager.ttflist
        if font.style == "normal"
        and font.weight in (400, "normal", "regular")
        and "lastresort" not in font.name.lower().replace(" ", "")  # draws a box for each character
    }
    order = {family: place for place, family in enumerate((FIRST, *_PREFERRED))}
    return dict(sorted(upright.items(), key=lambda item: (order.get(item[0], len(order)), item)))


@functools.cache
def _characters(family: str) -> frozenset[int]:
    """The characters of a family; none for a font that matplotlib cannot draw, such as a bitmap."""
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(_installed()[family]).get_charmap())
    except (KeyError, OSError, RuntimeError):
        return frozenset()
