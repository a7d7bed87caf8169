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


def _drawn(
    alignment: Alignment, width: int = 60, encoding: str = "utf-8", **settings: object
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=file, width=width, **settings)  # type: ignore[arg-type]
    terminal.draw(alignment, console, theme="dark")
    file.flush()
    return raw.getvalue().decode(encoding)


def test_without_colour_cells_are_shaded() -> None:
    assert _drawn(ALIGNMENT).split("\n") == [
        "layer 0",
        "      ¿mi casa </s>",
        "   my     █96█",
        "house 70▓  10  ░20░",
        "      0   ░░▒▒▓▓██ 1   numbers: percent",
        "",
    ]


def test_with_colour_every_cell_has_its_shade() -> None:
    drawn = _drawn(ALIGNMENT, force_terminal=True, color_system="truecolor", no_color=False)
    row = next(line for line in drawn.split("\n") if "my" in line)
    assert row.count("48;2;") == 3
    assert "░" not in drawn


def test_ascii_terminals_get_ascii_and_lose_nothing() -> None:
    drawn = _drawn(ALIGNMENT, encoding="ascii")
    assert drawn.isascii()
    assert "\\xbfmi" in drawn
    assert "#96#" in drawn


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_narrow_terminals_crop_and_say_so(encoding: str) -> None:
    alignment = Alignment(
        [[0.05] * 20] * 2, ["a" * 40, "人工知能"], [f"word{n}" for n in range(20)]
    )
    for width in (8, 12, 33):
        drawn = _drawn(alignment, width, encoding)
        assert max(cell_len(line) for line in drawn.split("\n")) <= width
        assert "of 20 keys" in " ".join(drawn.split())
    assert _drawn(alignment, 1)
    assert "widen" not in _drawn(alignment, 200)


def test_what_words_hide_is_shown_and_markup_is_text() -> None:
    odd = Alignment([[1.0, 0.0, 0.0]], ["[red]q[/]"], ["\x1b[31m", "a\u202eb", "\ud800"])
    drawn = _drawn(odd)
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn
    assert "[red]q[/]" in drawn
    assert "\\x1b[31m" in drawn
    assert "\\ud800" in drawn


MASKED = Alignment(
    [[1.0, 0.0], [1.0, 0.0]],
    ["a", "b"],
    ["x", "y"],
    readable=np.array([[True, False], [True, True]]),
)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_masked_cells_differ_from_zeros(encoding: str) -> None:
    drawn = _drawn(MASKED, encoding=encoding).split("\n")
    assert drawn[1:3] == ["a 100 ///", "b 100"]
    assert drawn[4] == "/// masked, may not be read"
    assert "masked" not in _drawn(ALIGNMENT, encoding=encoding)


def test_masked_cells_have_no_shade() -> None:
    drawn = _drawn(MASKED, force_terminal=True, color_system="truecolor", no_color=False)
    first, second = drawn.split("\n")[1:3]
    assert (first.count("48;2;"), second.count("48;2;")) == (1, 2)
    assert "///" in first
