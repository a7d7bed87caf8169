"""The picture of a cost: parameters and multiply-adds of each part, and memory as texts grow longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from regard.costs.parts import short
from regard.viewing import colours
from regard.viewing.canvas import blank, label, legend, plain_axes, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from regard.costs.parts import Cost

_PANEL, _ROW = 3.6, 0.26  # inches


def picture(cost: Cost, growth: Sequence[Cost] = (), theme: str = "light") -> Figure:
    """Draw the parts of a cost as bars, and beside them its memory for texts of other lengths, the shortest first."""
    palette = colours.theme(theme)
    panels = 2 + bool(growth)
    height = max(2.4, _ROW * len(cost.parts) + 0.6)
    figure = blank(panels * _PANEL, height, palette, title=cost.model)
    parameters, work, *memory = figure.subplots(1, panels)
    _bars(parameters, cost, "parameters", palette)
    _bars(work, cost, "multiply_adds", palette)
    work.set_yticklabels([])
    for axes in memory:
        _lines(axes, growth, palette)
    return figure


def _bars(axes: Axes, cost: Cost, name: str, palette: colours.Theme) -> None:
    sizes = [getattr(part, name) for part in cost.parts]
    total = getattr(cost.total, name)
    plain_axes(axes, palette, f"{name.replace('_', '-')}: {short(total)}")
    axes.grid(False)
    bars = axes.barh(
        range(len(sizes)), [size / max(total, 1) for size in sizes], color=palette.accent
    )
    axes.bar_label(bars, list(map(short, sizes)), padding=3, **style(palette, 7.5, palette.faint))
    axes.set(yticks=range(len(sizes)), xlim=(0, 1.25), xticks=[])
    axes.set_yticklabels([label(part.name) for part in cost.parts])
    axes.invert_yaxis()


def _lines(axes: Axes, growth: Sequence[Cost], palette: colours.Theme) -> None:
    plain_axes(axes, palette, "bytes of a pass without weights")
    lengths = [cost.queries or 0 for cost in growth]
    memories = [cost.memory for cost in growth]
    shade = colours.hexadecimal(palette.shade(0.65))
    with_scores = [each.activations + each.scores for each in memories]
    axes.plot(lengths, with_scores, color=palette.accent, label="with the matrix of scores")
    axes.plot(lengths, [each.activations for each in memories], color=shade, label="without it")
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_formatter(lambda size, _: short(int(size), "B"))
    axes.xaxis.set_major_formatter(lambda length, _: f"{int(length):,}")
    axes.minorticks_off()
    axes.set_xlabel("queries, and as many keys", **style(palette, 8, palette.faint))
    legend(axes, palette, "upper left")
