"""Histograms of the sentence lengths of a corpus, one for each split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.viewing import colours
from regard.viewing.canvas import blank, label, legend, plain_axes, style

_WIDTH, _PANEL = 7.6, 2.2  # inches
_BINS, _SHOWN = 60, 0.995
_LONGEST_NAME = 90

# For each side, such as a language, the number of sentences of each length.
Sides = Mapping[str, Mapping[int, int]]


def histograms(splits: Sequence[tuple[str, Sides]], *, unit: str = "words") -> Figure:
    """Draw the sentence lengths of the sides of each split, as shares of its sentences.

    All panels have one scale. It covers 99.5% of the sentences of each side. Longer sentences are
    counted in the last bin, which is then marked "and more".

    Args:
        splits: names, and for each side the number of sentences of each length.
        unit: the unit of a length.
    """
    palette = colours.theme("light")
    sides = [lengths for _, pair in splits for lengths in pair.values() if lengths]
    longest = max((max(lengths) for lengths in sides), default=1)
    shown = (
        np.quantile(list(each), _SHOWN, weights=list(each.values()), method="inverted_cdf")
        for each in sides
    )
    end = int(max(shown, default=1))
    width = max(1, -(-end // _BINS))
    bins = max(1, -(-end // width))
    figure = blank(_WIDTH, len(splits) * _PANEL, palette)
    panels = figure.subplots(len(splits), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, pair) in zip(panels, splits, strict=True):
        _panel(axes, name, pair, palette, width, bins)
    more = " (the last bin: and more)" if longest > width * bins else ""
    panels[-1].set_xlabel(f"{unit} of a sentence{more}", **style(palette, 8, palette.faint))
    return figure


def _panel(
    axes: Axes, name: str, pair: Sides, palette: colours.Theme, width: int, bins: int
) -> None:
    edges = np.arange(bins + 1) * width + 0.5
    inks = (palette.accent, colours.hexadecimal(palette.shade(0.65)))
    for (side, lengths), ink in zip(pair.items(), inks, strict=False):
        counts = np.array(list(lengths.values()))
        places = np.clip(list(lengths), 1, bins * width)
        shares = 100 * np.histogram(places, edges, weights=counts / max(counts.sum(), 1))[0]
        axes.stairs(shares, edges, color=ink, linewidth=1.4, label=side)
        axes.stairs(shares, edges, color=ink, fill=True, alpha=0.12)
    sentences = max((sum(lengths.values()) for lengths in pair.values()), default=0)
    plain_axes(axes, palette, f"{label(name, _LONGEST_NAME)}: {sentences:,} pairs")
    axes.set_xlim(0.5, edges[-1])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    legend(axes, palette)
