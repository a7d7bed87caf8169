"""Charts: the curves of a training, drawn from its metrics.jsonl, and the sentence lengths of a corpus."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from regard.errors import DataError, raised_as
from regard.viewing import colours
from regard.viewing.canvas import blank, label, legend, plain_axes, style

Points = list[tuple[int, float]]

# For each side, such as a language, the number of sentences of each length.
Sides = Mapping[str, Mapping[int, int]]

_MEASURED = {"loss", "bleu", "learning_rate", "tokens_per_second"}
_WIDTH, _PANEL = 7.6, 2.2  # inches
_BINS, _SHOWN = 60, 0.995
_LONGEST_NAME = 90


def read(path: str | os.PathLike[str]) -> dict[tuple[str, str], Points]:
    """The measurements in the metrics.jsonl of a run, by their kind ("step" or "validation") and name.

    Each line is a JSON object. Incomplete lines and values that are not finite numbers are ignored.

    Raises:
        DataError: the file cannot be read, or no line of it is a measurement.
    """
    with raised_as(DataError, f"{os.fspath(path)}: cannot be read"):
        text = Path(path).read_bytes().decode("utf-8", "replace")
    measurements: dict[tuple[str, str], Points] = defaultdict(list)
    for line in text.split("\n"):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # cut off by a kill
            entry = json.loads(line)
            for name in _MEASURED & entry.keys():
                if math.isfinite(entry[name]):
                    measurements[entry["kind"], name].append((entry["step"], entry[name]))
    if not measurements:
        raise DataError(f"{os.fspath(path)}: no measurement in it yet, nothing to draw")
    return measurements


def curves(path: str | os.PathLike[str], *, title: str = "") -> Figure:
    """Draw loss, validation BLEU, learning rate and speed from the metrics.jsonl of a run.

    Raises:
        DataError: the file cannot be read, or no line of it is a measurement.
    """
    palette, metrics = colours.theme("light"), read(path)
    strong, pale = (colours.hexadecimal(palette.shade(share)) for share in (0.65, 0.4))
    loss, validated = metrics["step", "loss"], metrics["validation", "loss"]
    bleu = metrics["validation", "bleu"]
    figure = blank(8.6, 5.4, palette, title=title)
    panels = figure.subplots(2, 2, sharex=True, gridspec_kw={"hspace": 0.1, "wspace": 0.06})
    (losses, scores), (rates, speeds) = panels
    _panel(losses, "Loss, nats a token", palette)
    _line(losses, palette, loss, pale, "training")
    _line(losses, palette, validated, palette.accent, "validation")
    if loss and validated:
        legend(losses, palette)
    _panel(scores, "Validation BLEU", palette)
    _line(scores, palette, bleu, palette.accent)
    _mark_best(scores, bleu, palette)
    _panel(rates, "Learning rate", palette)
    _line(rates, palette, metrics["step", "learning_rate"], strong)
    _panel(speeds, "Tokens a second", palette)
    _line(speeds, palette, metrics["step", "tokens_per_second"], strong)
    for axes in (rates, speeds):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("step", **style(palette, 8, palette.faint))
    return figure


def _panel(axes: Axes, title: str, palette: colours.Theme) -> None:
    plain_axes(axes, palette, title)
    axes.tick_params(labelbottom=True)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _line(
    axes: Axes, palette: colours.Theme, points: Points, colour: str, name: str | None = None
) -> None:
    if not points:
        properties = {"ha": "center", **style(palette, 8, palette.faint)}
        axes.text(0.5, 0.5, "not measured yet", transform=axes.transAxes, **properties)
        return
    dots = "o" if len(points) == 1 else ""
    properties = {"color": colour, "linewidth": 1.4, "label": name, "marker": dots, "markersize": 4}
    axes.plot(*zip(*points, strict=True), **properties)


def _mark_best(axes: Axes, points: Points, palette: colours.Theme) -> None:
    if not points:
        return
    step, best = max(points, key=lambda point: point[1])
    axes.plot([step], [best], "o", color=palette.accent, markersize=5)
    place: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 7), "ha": "center"}
    axes.annotate(f"{best:.1f}", (step, best), **place, **style(palette, 8.5))
    axes.margins(x=0.05, y=0.16)


def histograms(splits: Sequence[tuple[str, Sides]], *, unit: str = "words") -> Figure:
    """Draw the sentence lengths of the sides of each split, as shares of its sentences.

    All panels have one scale. It covers 99.5% of the sentences of each side. Longer sentences are
    counted in the last bin, which is then marked "and more".
    """
    palette = colours.theme("light")
    sides = [lengths for _, pair in splits for lengths in pair.values() if lengths]
    longest = max((max(lengths) for lengths in sides), default=1)
    ends = (
        np.quantile(list(each), _SHOWN, weights=list(each.values()), method="inverted_cdf")
        for each in sides
    )
    end = int(max(ends, default=1))
    width = max(1, -(-end // _BINS))
    bins = max(1, -(-end // width))
    figure = blank(_WIDTH, len(splits) * _PANEL, palette)
    panels = figure.subplots(len(splits), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, pair) in zip(panels, splits, strict=True):
        _histogram(axes, name, pair, palette, width, bins)
    more = " (the last bin: and more)" if longest > width * bins else ""
    panels[-1].set_xlabel(f"{unit} of a sentence{more}", **style(palette, 8, palette.faint))
    return figure


def _histogram(
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
