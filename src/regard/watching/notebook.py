"""Tables in a notebook: text is escaped, the number of rows is limited."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import islice

MOST = 200  # rows


def html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table. Rows after the 200th are only counted."""
    lines = [_row("th", header), *(_row("td", row) for row in islice(rows, MOST))]
    hidden = len(rows) - MOST
    more = f"<div>{hidden} more rows: print() shows all</div>" if hidden > 0 else ""
    return f"<table>{''.join(lines)}</table>{more}"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
