"""Terminal drawings: whatever the console, both sentences and the strongest cells are there."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.viewing import terminal
from regard.viewing.alignment import Alignment

ALIGNMENT = Alignment(
    [[0.02, 0.96, 0.02], [0.7, 0.1, 0.2]], ["my", "house"], ["¿mi", "casa", "</s>"], "layer 0"
)


def _draw(
    alignment: Alignment, width: int = 60, encoding: str = "utf-8", **settings: object
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=file, width=width, **settings)  # type: ignore[arg-type]
    terminal.draw(alignment, console, theme="dark")
    file.flush()
    return raw.getvalue().decode(encoding)


def test_without_colour_cells_are_shaded() -> None:
    assert _draw(ALIGNMENT).split("\n") == [
        "layer 0",
        "      ¿mi casa </s>",
        "   my     █96█",
        "house 70▓  10  ░20░",
        "      0   ░░▒▒▓▓██ 1   numbers: percent",
        "",
    ]


def test_with_colour_every_cell_has_its_shade() -> None:
    drawing = _draw(ALIGNMENT, force_terminal=True, color_system="truecolor", no_color=False)
    row = next(line for line in drawing.split("\n") if "my" in line)
    assert row.count("48;2;") == 3
    assert "░" not in drawing


def test_ascii_terminals_get_ascii_and_lose_nothing() -> None:
    drawing = _draw(ALIGNMENT, encoding="ascii")
    assert drawing.isascii()
    assert "\\xbfmi" in drawing
    assert "#96#" in drawing


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_narrow_terminals_crop_and_say_so(encoding: str) -> None:
    alignment = Alignment(
        [[0.05] * 20] * 2, ["a" * 40, "人工知能"], [f"word{n}" for n in range(20)]
    )
    for width in (8, 12, 33):
        drawing = _draw(alignment, width, encoding)
        assert max(cell_len(line) for line in drawing.split("\n")) <= width
        assert "of 20 keys" in " ".join(drawing.split())
    assert _draw(alignment, 1)
    assert "widen" not in _draw(alignment, 200)


def test_what_words_hide_is_shown_and_markup_is_text() -> None:
    odd = Alignment([[1.0, 0.0, 0.0]], ["[red]q[/]"], ["\x1b[31m", "a\u202eb", "\ud800"])
    drawing = _draw(odd)
    assert "\x1b" not in drawing
    assert "\u202e" not in drawing
    assert "[red]q[/]" in drawing
    assert "\\x1b[31m" in drawing
    assert "\\ud800" in drawing


MASKED = Alignment(
    [[1.0, 0.0], [1.0, 0.0]],
    ["a", "b"],
    ["x", "y"],
    readable=np.array([[True, False], [True, True]]),
)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_masked_cells_differ_from_zeros(encoding: str) -> None:
    lines = _draw(MASKED, encoding=encoding).split("\n")
    assert lines[1:3] == ["a 100 ///", "b 100"]
    assert lines[4] == "/// masked, may not be read"
    assert "masked" not in _draw(ALIGNMENT, encoding=encoding)


def test_masked_cells_have_no_shade() -> None:
    drawing = _draw(MASKED, force_terminal=True, color_system="truecolor", no_color=False)
    first_line, second = drawing.split("\n")[1:3]
    assert (first_line.count("48;2;"), second.count("48;2;")) == (1, 2)
    assert "///" in first_line
