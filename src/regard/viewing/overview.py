"""A look of any size as a figure: its map, a panel for each head, all on one scale."""

from __future__ import annotations

from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING, Any, Literal

from regard.attention.looks.windows import Window, positions
from regard.attention.shapes import ShapeError
from regard.viewing import colours, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from regard.attention.looks import Look

PANELS, ACROSS = 16, 4
SIDE = 3.0  # inches


def plot(
    look: Look,
    height: int = 64,
    width: int = 64,
    *,
    rows: Window = None,
    columns: Window = None,
    reduce: Literal["mean", "max"] = "mean",
    entry: int | tuple[int, ...] = (),
    theme: str = "light",
) -> Figure:
    """Draw a look's map; `look.plot(...)` is the same.

    Args:
        look: any look; only its map is computed.
        height: rows of a map, at most.
        width: columns of a map, at most.
        rows: the window's queries; None for all.
        columns: the window's keys; None for all.
        reduce: "mean" or "max" of the weights in a cell.
        entry: the batch entry to draw, by its leading axes; a panel for each below it.
        theme: "light" or "dark".

    Returns:
        The figure, with axes in positions of queries and keys.

    Raises:
        ShapeError: there are more than 16 panels, or none.
        ValueError: there is no such theme.

    >>> import torch, regard
    >>> look = regard.look(torch.zeros(2, 5, 4), torch.zeros(2, 7, 4))
    >>> [axes.get_title() for axes in plot(look).axes[:2]]
    ['0', '1']
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    paper = colours.theme(theme)
    *batch, queries, keys = look.shape
    chosen = (entry,) if isinstance(entry, int) else tuple(entry)
    left = batch[len(chosen) :]
    if len(chosen) > len(batch) or not 1 <= prod(left) <= PANELS:
        raise ShapeError(
            f"the look has batch axes {batch}, of which entry {list(chosen)} leaves {prod(left)}"
            f" maps to draw: pass an entry that leaves 1 to {PANELS}, or draw mean_heads()"
        )
    down, across = positions(rows, queries, look.device), positions(columns, keys, look.device)
    size = min(height, max(1, len(down))), min(width, max(1, len(across)))
    pooled = look.map(*size, rows=down, columns=across, reduce=reduce)[chosen]
    cells = pooled.reshape(-1, *size).cpu().numpy()
    wide = min(len(cells), ACROSS)
    tall = ceil(len(cells) / wide)
    scale = {"vmin": min(0.0, float(cells.min())), "vmax": float(cells.max()) or 1.0}
    shades = ListedColormap([paper.shade(step / 255) for step in range(256)])
    style: dict[str, Any] = {"cmap": shades, "aspect": "auto", "interpolation": "nearest", **scale}
    with figures.quiet():
        inches = (1 + SIDE * wide, SIDE * tall)
        figure = Figure(figsize=inches, layout="constrained", facecolor=paper.paper)
        panels = figure.subplots(tall, wide, squeeze=False, sharex=True, sharey=True).flatten()
        span = (*_ends(across), *reversed(_ends(down)))
        for panel, own, place in zip(panels, cells, product(*map(range, left)), strict=False):
            image = panel.imshow(own, extent=span, **style)
            panel.set_title(", ".join(map(str, (*chosen, *place))), color=paper.ink)
            panel.set_xlabel("key", color=paper.faint)
            panel.set_ylabel("query", color=paper.faint)
            panel.tick_params(colors=paper.faint)
            panel.label_outer()
        for panel in panels[len(cells) :]:
            panel.set_axis_off()
        bar = figure.colorbar(image, ax=list(panels))
        bar.set_label("weight" if reduce == "mean" else "highest weight", color=paper.faint)
        bar.ax.tick_params(colors=paper.faint)
    return figure


def _ends(window: Tensor) -> tuple[float, float]:
    """Where the axis of a window begins and ends: in positions, where those are neighbours."""
    neighbours = len(window) > 0 and bool((window.diff() == 1).all())
    start = int(window[0]) if neighbours else 0
    return float(start), float(start + max(1, len(window)))
