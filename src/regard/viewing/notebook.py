"""A translation in a notebook: its sentences, its word links and its attention weights."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from regard.viewing import colours
from regard.viewing.alignment import Alignment, alignment_of, last_cross
from regard.viewing.labels import percent, visible

if TYPE_CHECKING:
    from regard.translation.results import Translation

MOST = 40  # words of a side of the table
_HATCH = "background:repeating-linear-gradient(135deg,#8888 0 1px,transparent 1px 5px)"
_CELL = "width:2.2em;padding:2px;text-align:center;font-size:85%"


def html(translation: Translation) -> str:
    """Self-contained markup, in which all text of the translation is escaped."""
    lines = [f"{_text(translation.source)} → <b>{_text(translation.text)}</b>"]
    if translation.alignment:
        sources, targets = translation.source.split(), translation.text.split()
        links = (
            f"{_text(targets[target])} ← {_text(sources[source])}"
            for source, target in translation.alignment
            if source < len(sources) and target < len(targets)
        )
        lines.append(" &nbsp; ".join(links))
    name = last_cross(translation)
    if name is not None:
        lines.append(_table(translation, name))
    return "".join(f"<div>{part}</div>" for part in lines)


def _table(translation: Translation, name: str) -> str:
    """A table of one attention, the mean of its heads, in whole words."""
    alignment = alignment_of(translation, name)
    rows, columns = alignment.weights.shape
    if max(rows, columns) > MOST:
        return f"{rows} by {columns} words: too many for a table here"
    caption = f"{escape(name)}, mean of {translation.looks[name].shape[-3]} heads, in percent"
    top = "".join(f'<th style="{_CELL}">{_text(key)}</th>' for key in alignment.keys)
    lines = "".join(
        f'<tr><th style="text-align:right;padding:2px">{_text(query)}</th>{_cells(alignment, row)}</tr>'
        for row, query in enumerate(alignment.queries)
    )
    return f"<table><caption>{caption}</caption><tr><td></td>{top}</tr>{lines}</table>"


def _cells(alignment: Alignment, row: int) -> str:
    palette, top = colours.theme("light"), alignment.top
    cells = []
    for weight in alignment.masked[row].tolist():
        if weight is None:
            cells.append(f'<td style="{_CELL};{_HATCH}" title="masked, may not be read"></td>')
            continue
        share = weight / top
        colour = (
            f"background:{colours.hexadecimal(palette.shade(share))};color:{palette.ink_on(share)}"
        )
        cells.append(f'<td style="{_CELL};{colour}">{percent(weight)}</td>')
    return "".join(cells)


def _text(text: str) -> str:
    """Escaped text, isolated so that its direction does not affect its neighbours."""
    return f"<bdi>{escape(visible(text))}</bdi>"
