"""A look of any size as a figure: a panel with the map of each head, all on one scale."""

from collections.abc import Sequence
from itertools import product
from math import ceil, prod
from typing import Literal

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from regard.attention.looks import Look
from regard.attention.looks.notebook import masked
from regard.attention.looks.windows import Window, positions
from regard.attention.shapes import ShapeError
from regard.viewing import canvas, colours
from regard.viewing.alignment import round_up

PANELS, ACROSS = 16, 4
SIDE, WORD = 3.0, 0.12  # inches: of a panel, and of the row of a word
MOST_WORDS = 60  # of a side; above, some are left out


def plot(
    look: Look,
    height: int = 64,
    width: int = 64,
    *,
    rows: Window = None,
    columns: Window = None,
    reduce: Literal["mean", "max"] = "mean",
    entry: int | tuple[int, ...] = (),
    title: str | None = None,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    theme: str = "light",
) -> Figure:
    """Draw the map of a look; `look.plot(...)` is the same.

    The colour scale ends at a round number. Masked cells are hatched; a cell of several weights
    counts as masked if its value is 0 and the weights at its corners are masked.

    Args:
        look: any look; only its map is computed.
        height: the largest number of rows of a map.
        width: the largest number of columns of a map.
        rows: the window's queries; None for all.
        columns: the window's keys; None for all.
        reduce: "mean" or "max" of the weights in a cell.
        entry: indices of the leading batch axes; each remaining batch entry has a panel.
        title: the title of the figure; None for `look.caption.title`.
        queries: a word for each query of the look; None for their positions.
        keys: a word for each key of the look; None for their positions.
        theme: "light" or "dark".

    Returns:
        The figure, whose axes are positions of queries and keys. A notebook displays it.

    Raises:
        ShapeError: there are more than 16 panels, or none, or not a word for each query or key.
        ValueError: there is no such theme.

    >>> import torch, regard
    >>> look = regard.look(torch.zeros(2, 5, 4), torch.zeros(2, 7, 4))
    >>> [axes.get_title() for axes in plot(look).axes[:2]]
    ['0', '1']
    """
    palette = colours.theme(theme)
    *batch, _, _ = look.shape
    indices = (entry,) if isinstance(entry, int) else tuple(entry)
    panel_axes = batch[len(indices) :]
    if len(indices) > len(batch) or not 1 <= prod(panel_axes) <= PANELS:
        raise ShapeError(
            f"the look has batch axes {batch}, of which entry {list(indices)} leaves {prod(panel_axes)}"
            f" maps to draw: pass an entry that leaves 1 to {PANELS}, or draw mean_heads()"
        )
    if indices:
        look = look[indices]  # the others are not computed
    down = positions(rows, look.shape[-2], look.device)
    across = positions(columns, look.shape[-1], look.device)
    size = min(height, max(1, len(down))), min(width, max(1, len(across)))
    pooled = look.map(*size, rows=down, columns=across, reduce=reduce)
    cells, hidden = (
        each.reshape(-1, *size).cpu().numpy()
        for each in (pooled, masked(look, pooled, down, across))
    )
    maps = np.ma.masked_array(cells, hidden)
    places = look.caption.places
    query_places = down if places is None else places.to(down.device)[down]
    for kind, words, count in zip(("query", "key"), (queries, keys), look.shape[-2:], strict=True):
        if words is not None and len(words) != count:
            raise ShapeError(
                f"{len(words)} words for {count}: pass one for each {kind} of the look"
            )
    sides = _Side(down, query_places, queries), _Side(across, across, keys)
    wide = min(panel_axes[-1] if panel_axes else 1, ACROSS)
    tall = ceil(len(cells) / wide)
    low = float(cells.min())
    scale = -round_up(-low) if low < 0 else 0.0, round_up(float(cells.max()))
    figure = canvas.blank(
        1 + sides[1].inches * wide,
        sides[0].inches * tall,
        palette,
        title=look.caption.title if title is None else title,
        masked=bool(hidden.any()),
    )
    panels = figure.subplots(tall, wide, squeeze=False, sharex=True, sharey=True).flatten()
    extent = (*sides[1].ends, *reversed(sides[0].ends))
    for panel, values, place in zip(panels, maps, product(*map(range, panel_axes)), strict=False):
        image = canvas.paint(panel, values, palette, scale, extent)
        panel.set_title(look.caption.of(place), **canvas.style(palette, 10))
        panel.set_xlabel("key", color=palette.faint)
        panel.set_ylabel("query", color=palette.faint)
        panel.tick_params(colors=palette.faint, length=2)
        sides[0].mark(panel.yaxis, palette)
        sides[1].mark(panel.xaxis, palette, rotation=90)
        panel.label_outer()
    for panel in panels[len(cells) :]:
        panel.set_axis_off()
    name = "weight" if reduce == "mean" else "highest weight"
    canvas.draw_bar(figure, image, panels, palette, name)
    return figure


class _Side:
    """An axis of a window: its ticks are at positions where these are consecutive, else a label is at each.

    The middle of a cell is at its position: the `ends` of the axis are half a cell further.
    """

    def __init__(self, window: Tensor, places: Tensor, words: Sequence[str] | None) -> None:
        """For the queries or keys of a window: indices in the look, positions, and words if given."""
        count, start = max(1, len(window)), 0
        self.marks: list[str] | None = None
        if words is not None:
            self.marks = [canvas.label(words[place]) for place in window.tolist()]
        elif not bool((places.diff() == 1).all()):
            self.marks = [str(place) for place in places.tolist()]
        elif len(places):
            start = int(places[0])
        self.ends = start - 0.5, start + count - 0.5
        self.inches = SIDE if self.marks is None else max(SIDE, WORD * min(count, MOST_WORDS))

    def mark(self, axis: Axis, palette: colours.Theme, rotation: int = 0) -> None:
        """Set the ticks, at whole positions or at words."""
        if self.marks is not None:
            canvas.write_words(
                axis, self.marks, self.inches, 7, palette, 0, palette.faint, rotation=rotation
            )
            return
        low, high = self.ends
        ticks = MaxNLocator(6, integer=True, min_n_ticks=1).tick_values(low, high)
        inside = [int(tick) for tick in ticks if low < tick < high]
        axis.set_ticks(inside, [str(tick) for tick in inside])
