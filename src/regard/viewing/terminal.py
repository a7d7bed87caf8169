"""An alignment drawn in a terminal: the words of both sentences around a grid of shaded cells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.viewing import colours
from regard.viewing.labels import cells, shorten, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    from regard.viewing.alignment import Alignment

_WIDEST_KEY, _NARROWEST_KEY, _WIDEST_QUERY = 18, 4, 20
_SAID = 0.095  # cells of less than 10% stay without their number
_BLOCKS, _ASCII_BLOCKS, _MASKED = " ░▒▓█", " .:=#", "/"


def draw(alignment: Alignment, console: Console, *, theme: str | None = None) -> None:
    """Print an alignment: queries down, keys across, the larger the weight the stronger the cell.

    Where the console has no colour, cells are filled with ░▒▓█, and with .:=# where it cannot
    write those. Masked cells are filled with slashes. Where the console is too narrow, words are
    cropped first, then keys are left out. Notes below the legend report both.

    Args:
        alignment: what to draw.
        console: a rich console; its width, encoding and colours are kept to.
        theme: "light" or "dark"; by default what the environment says of the terminal.
    """
    from rich.text import Text

    style = _CellStyle.on(console, theme, alignment)
    keys = [style.text(key) for key in alignment.keys]
    most = max(4, min(_WIDEST_QUERY, console.width // 4))
    queries = [shorten(style.text(query), most, style.ellipsis) for query in alignment.queries]
    margin = max(cells(query) for query in queries)
    widths = _column_widths(keys, console.width - margin - 1)

    if alignment.title:
        title = shorten(style.text(alignment.title), console.width, style.ellipsis)
        _print(console, Text(title, style="bold"))
    head = Text(" " * (margin + 1))
    for key, width in zip(keys, widths, strict=False):
        head.append(_centred(shorten(key, width - 1, style.ellipsis), width))
    _print(console, head)
    for query, row in zip(queries, alignment.masked.tolist(), strict=True):
        line = Text(" " * (margin - cells(query)) + query + " ")
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
        for line_of_note in _wrapped(note, console.width):
            _print(console, Text(line_of_note))


@dataclass(frozen=True)
class _CellStyle:
    """What this console can show: its colours, its blocks and its characters."""

    encoding: str
    theme: colours.Theme | None
    blocks: str
    ellipsis: str
    low: float
    high: float

    @classmethod
    def on(cls, console: Console, theme: str | None, alignment: Alignment) -> _CellStyle:
        encoding = "ascii" if console.options.ascii_only else console.encoding
        plain = console.no_color or console.color_system is None
        return cls(
            encoding,
            None if plain else colours.theme(theme or _theme_of_terminal()),
            _BLOCKS if _writes(_BLOCKS, encoding) else _ASCII_BLOCKS,
            "…" if _writes("…", encoding) else "~",
            *alignment.scale(),
        )

    @property
    def in_percent(self) -> bool:
        """Whether the weights are shares; plain scores are drawn without numbers."""
        return self.low >= 0 and self.high <= 1

    def text(self, label: str) -> str:
        shown = visible(label)
        return shown.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def fill(self, line: Text, weight: float | None, width: int) -> None:
        """One cell and the gap after it: a weight of 10% or more in percent; None for a masked one."""
        if weight is None:
            faint = "" if self.theme is None else self.theme.faint
            line.append((width - 1) * _MASKED, faint).append(" ")
            return
        share = (weight - self.low) / (self.high - self.low)
        said = f"{100 * weight:.0f}" if self.in_percent and weight >= _SAID else ""
        said = said if len(said) < width else ""
        if self.theme is not None:
            line.append(_centred(said, width - 1), self._style(share))
        else:
            spaced = f" {said} " if said and len(said) + 4 < width else said
            line.append(_centred(spaced, width - 1, self._block(share)))
        line.append(" ")

    def legend(self, margin: int) -> Text:
        from rich.text import Text

        line = Text(" " * margin + f"{self.low:g} ")
        steps = 12 if self.theme is not None else len(self.blocks)
        for step in range(steps):
            share = step / (steps - 1)
            if self.theme is not None:
                line.append(" ", self._style(share))
            else:
                line.append(2 * self._block(share))
        return line.append(f" {self.high:g}" + ("   numbers: percent" if self.in_percent else ""))

    def _style(self, share: float) -> Style:
        from rich.style import Style

        theme = self.theme or colours.theme("dark")
        return Style(color=theme.ink_on(share), bgcolor=colours.hexadecimal(theme.shade(share)))

    def _block(self, share: float) -> str:
        return self.blocks[min(int(max(share, 0.0) * len(self.blocks)), len(self.blocks) - 1)]


def _column_widths(keys: list[str], room: int) -> list[int]:
    """The widths of as many columns as there is room for, each with one column of gap."""
    for widest in range(_WIDEST_KEY, _NARROWEST_KEY - 1, -1):
        widths = [max(3, min(cells(key), widest)) + 1 for key in keys]
        if sum(widths) - 1 <= room:
            return widths
    return widths[: max(1, _fitting(widths, room))]


def _fitting(widths: list[int], room: int) -> int:
    taken = 0
    for place, width in enumerate(widths):
        taken += width
        if taken - 1 > room:
            return place
    return len(widths)


def _centred(text: str, width: int, fill: str = " ") -> str:
    before = (width - cells(text)) // 2
    return fill * before + text + fill * (width - cells(text) - before)


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 8))


def _writes(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _theme_of_terminal() -> str:
    """Some terminals say what paper they have: COLORFGBG is "ink;paper", 7 and 15 are white."""
    paper = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if paper in ("7", "15") else "dark"


def _print(console: Console, line: Text) -> None:
    if not line.spans:  # spaces with a colour are cells
        line.rstrip()
    console.print(line, no_wrap=True, overflow="crop", highlight=False)
