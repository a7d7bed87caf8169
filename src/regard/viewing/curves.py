"""The curves of a training, drawn from its metrics.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from regard.errors import DataError, raised_as
from regard.viewing import colours
from regard.viewing.canvas import blank, legend, plain_axes, style

Points = list[tuple[int, float]]

_MEASURED = {"loss", "bleu", "learning_rate", "tokens_per_second"}


def read(path: str | os.PathLike[str]) -> dict[tuple[str, str], Points]:
    """The measurements in the metrics.jsonl of a run, by their kind ("step" or "validation") and name.

    Each line is a JSON object. Incomplete lines and values that are not finite numbers are ignored.

    Returns:
        The (step, value) pairs of each kind and name, in the order of the steps.

    Raises:
        DataError: the file cannot be read, or no line of it is a measurement.
    """
    with raised_as(DataError, f"{os.fspath(path)}: cannot be read"):
        text = Path(path).read_bytes().decode("utf-8", "replace")
    found: dict[tuple[str, str], Points] = defaultdict(list)
    for line in text.split("\n"):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # cut off by a kill
            entry = json.loads(line)
            for name in _MEASURED & entry.keys():
                if math.isfinite(entry[name]):
                    found[entry["kind"], name].append((entry["step"], entry[name]))
    if not found:
        raise DataError(f"{os.fspath(path)}: no measurement in it yet, nothing to draw")
    return found


def draw(path: str | os.PathLike[str], theme: str = "light", *, title: str = "") -> Figure:
    """Draw loss, validation BLEU, learning rate and speed from the metrics.jsonl of a run.

    Raises:
        DataError: the file cannot be read, or no line of it is a measurement.
    """
    palette, metrics = colours.theme(theme), read(path)
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
        how = {"ha": "center", **style(palette, 8, palette.faint)}
        axes.text(0.5, 0.5, "not measured yet", transform=axes.transAxes, **how)
        return
    dots = "o" if len(points) == 1 else ""
    how = {"color": colour, "linewidth": 1.4, "label": name, "marker": dots, "markersize": 4}
    axes.plot(*zip(*points, strict=True), **how)


def _mark_best(axes: Axes, points: Points, palette: colours.Theme) -> None:
    if not points:
        return
    step, best = max(points, key=lambda point: point[1])
    axes.plot([step], [best], "o", color=palette.accent, markersize=5)
    place: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 7), "ha": "center"}
    axes.annotate(f"{best:.1f}", (step, best), **place, **style(palette, 8.5))
    axes.margins(x=0.05, y=0.16)
