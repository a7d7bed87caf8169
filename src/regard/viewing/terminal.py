"""Draw an alignment in a terminal: shaded cells with the words of queries and keys."""

from __future__ import annotations

import os
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from regard.viewing import colours
from regard.viewing.labels import percent, shorten, visible

if TYPE_CHECKING:
    from rich.console import Console

    from regard.viewing.alignment import Alignment

_WIDEST_KEY, _NARROWEST_KEY, _WIDEST_QUERY = 18, 4, 20
_BLOCKS, _ASCII_BLOCKS, _MASKED = " ░▒▓█", " .:=#", "/"


def draw(alignment: Alignment, console: Console, *, theme: str | None = None) -> None:
    """Print an alignment: queries down, keys across.

    Without colours, cells are filled with ░▒▓█, or with .:=# if the console cannot print those.
    Masked cells are filled with slashes. On a narrow console words are cropped first, then keys are
    left out. Notes below the legend report masked cells and missing keys. The theme, "light" or "dark", is by default
    that of the terminal, if COLORFGBG gives it.
    """
    style = _CellStyle(console, theme, alignment)
    keys = [style.text(key) for key in alignment.keys]
    widest = max(4, min(_WIDEST_QUERY, console.width // 4))
    queries = [shorten(style.text(query), widest, style.ellipsis) for query in alignment.queries]
    margin = max(cell_len(query) for query in queries)
    widths = _column_widths(keys, console.width - margin - 1)

    if alignment.title:
        title = shorten(style.text(alignment.title), console.width, style.ellipsis)
        _print(console, Text(title, style="bold"))
    head = Text(" " * (margin + 1))
    for key, width in zip(keys, widths, strict=False):
        head.append(_centred(shorten(key, width - 1, style.ellipsis), width))
    _print(console, head)
    for query, row in zip(queries, alignment.masked.tolist(), strict=True):
        line = Text(" " * (margin - cell_len(query)) + query + " ")
        for weight, width in zip(row, widths, strict=False):
            style.fill(line, weight, width)
        _print(console, line)
    _print(console, style.legend(margin + 1))
    notes = [f"{3 * _MASKED} masked, may not be read"] * alignment.has_masked
    if len(widths) < len(keys):
        notes.append(
            f"showing {len(widths)} of {len(keys)} keys: widen the terminal to see the rest"
        )
    for note in notes:
        console.print(note, markup=False, highlight=False)


class _CellStyle:
    """The colours, blocks and characters that a console can show, and the colour scale."""

    def __init__(self, console: Console, theme: str | None, alignment: Alignment) -> None:
        self.encoding = "ascii" if console.options.ascii_only else console.encoding
        plain = console.no_color or console.color_system is None
        self.theme = None if plain else colours.theme(theme or _theme_of_terminal())
        self.blocks = _BLOCKS if _writes(_BLOCKS, self.encoding) else _ASCII_BLOCKS
        self.ellipsis = "…" if _writes("…", self.encoding) else "~"
        self.top = alignment.top

    def text(self, label: str) -> str:
        safe_label = visible(label)
        return safe_label.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def fill(self, line: Text, weight: float | None, width: int) -> None:
        """Append a cell and a gap. A weight of None is masked."""
        if weight is None:
            faint = "" if self.theme is None else self.theme.faint
            line.append((width - 1) * _MASKED, faint).append(" ")
            return
        number = percent(weight)
        number = number if len(number) < width else ""
        if self.theme is None and number and len(number) + 4 < width:
            number = f" {number} "
        line.append(*self._cell(number, width - 1, weight / self.top)).append(" ")

    def legend(self, margin: int) -> Text:
        line = Text(" " * margin + "0 ")
        steps, width = (len(self.blocks), 2) if self.theme is None else (12, 1)
        for step in range(steps):
            line.append(*self._cell("", width, step / (steps - 1)))
        return line.append(f" {self.top:g}   numbers: percent")

    def _cell(self, text: str, width: int, share: float) -> tuple[str, Style | str]:
        if self.theme is None:
            block = min(int(max(share, 0.0) * len(self.blocks)), len(self.blocks) - 1)
            return _centred(text, width, self.blocks[block]), ""
        shade = colours.hexadecimal(self.theme.shade(share))
        return _centred(text, width), Style(color=self.theme.ink_on(share), bgcolor=shade)


def _column_widths(keys: list[str], room: int) -> list[int]:
    """The widths of the columns that fit, each with a gap of one character."""
    for widest in range(_WIDEST_KEY, _NARROWEST_KEY - 1, -1):
        widths = [max(3, min(cell_len(key), widest)) + 1 for key in keys]
        if sum(widths) - 1 <= room:
            return widths
    fitting = sum(end - 1 <= room for end in accumulate(widths))
    return widths[: max(1, fitting)]


def _centred(text: str, width: int, fill: str = " ") -> str:
    margin = (width - cell_len(text)) // 2
    return fill * margin + text + fill * (width - cell_len(text) - margin)


def _writes(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _theme_of_terminal() -> str:
    """From COLORFGBG, "foreground;background", where 7 and 15 are white; "dark" without it."""
    paper = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if paper in ("7", "15") else "dark"


def _print(console: Console, line: Text) -> None:
    if not line.spans:  # spaces with a colour are cells
        line.rstrip()
    console.print(line, no_wrap=True, overflow="crop", highlight=False)
