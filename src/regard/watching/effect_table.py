"""The table of effects of heads, layers or keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import nan
from typing import Any

import torch
from torch import Tensor

from regard.watching.table import html

PLOTTER = "regard.viewing.grid"  # imported by name: the library works without pictures


@dataclass(frozen=True)
class Effect:
    """The effect of an edit of one head, layer or key: the metric with the edit minus that without.

    Attributes:
        name: of the attention; "" for a key, which is edited in all attentions.
        layer: its number in the order in which the attentions ran; None for a key.
        head: None for a layer or a key.
        key: None for a head or a layer.
        effect: the mean over batch entries; an estimate with `method="gradient"`.
        run: with `agreement=True`, the effect that `method="run"` has; else None.
    """

    name: str
    layer: int | None
    head: int | None
    key: int | None
    effect: float
    run: float | None = None

    @property
    def label(self) -> str:
        """Such as "17.3" for head 3 of layer 17."""
        return ".".join(
            str(number) for number in (self.layer, self.head, self.key) if number is not None
        )


@dataclass(frozen=True)
class EffectTable(Sequence[Effect]):
    """Effects in the order of the model; `sorted()` puts the largest ones in front.

    Attributes:
        effects: the rows.
        of: "heads", "layers" or "keys".
        base: the metric without an edit.
        method: "run" or "gradient".
        total: how many rows a whole table has; fewer were computed if it was interrupted.
        passes: how many times the model ran.
        reused: whether the layers below an edit were computed once.
    """

    effects: tuple[Effect, ...]
    of: str
    base: float
    method: str
    total: int
    passes: int = 0
    reused: bool = False

    def __getitem__(self, index: Any) -> Any:
        return self.effects[index]

    def __len__(self) -> int:
        return len(self.effects)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.effects)

    def sorted(self, count: int | None = None) -> EffectTable:
        """The rows by the size of their effect, the largest first, `count` of them or all."""
        ordered = sorted(self.effects, key=lambda row: -abs(row.effect))
        return replace(self, effects=tuple(ordered[:count]))

    def array(self) -> Tensor:
        """The effects as (layers, heads), (layers,) or (keys,); nan where there is none."""
        columns = {"heads": ("layer", "head"), "layers": ("layer",), "keys": ("key",)}[self.of]
        places = [tuple(getattr(row, name) for name in columns) for row in self.effects]
        shape = [1 + max(numbers) for numbers in zip(*places, strict=True)] or [0] * len(columns)
        array = torch.full(shape, nan, dtype=torch.float64)
        for place, row in zip(places, self.effects, strict=True):
            array[place] = row.effect
        return array

    @property
    def agreement(self) -> float:
        """The rank correlation (Spearman's) of the estimates with the effects of `method="run"`; nan without them."""
        pairs = [(row.effect, row.run) for row in self.effects if row.run is not None]
        return (
            nan
            if len(pairs) < 2
            else rank_correlation(*map(torch.tensor, zip(*pairs, strict=True)))
        )

    def plot(self, **options: Any) -> Any:
        """A picture of layers × heads, as a figure of matplotlib's: red is above 0, blue below.

        Args:
            options: `title`, and `theme`, "light" or "dark".
        """
        return import_module(PLOTTER).plot(self, **options)

    def __str__(self) -> str:
        header, *rows = self._lines()
        widths = [max(map(len, cells)) for cells in zip(header, *rows, strict=True)]
        lines = [
            " ".join(
                f"{cell:{width}}" if cell and not column else f"{cell:>{width}}"
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            for cells in (header, *rows)
        ]
        return "\n".join([self.heading, *lines])

    @property
    def heading(self) -> str:
        """The metric without an edit, the method, and how many rows are missing."""
        method = (
            "estimated by the gradient" if self.method == "gradient" else f"{self.passes} passes"
        )
        heading = f"effects of {self.of} on a metric of {self.base:.4g} ({method})"
        if len(self.effects) < self.total:
            heading += f"; {len(self.effects)} of {self.total}"
        agreement = self.agreement
        if agreement == agreement:
            heading += f"; rank correlation with the runs {agreement:.3f}"
        return heading

    def _repr_html_(self) -> str:
        from html import escape

        header, *rows = self._lines()
        return f"<div>{escape(self.heading)}</div>{html(header, rows)}"

    def _lines(self) -> list[list[str]]:
        names = {"heads": ["name", "head"], "layers": ["name"], "keys": ["key"]}[self.of]
        measured = any(row.run is not None for row in self.effects)
        header = [*names, "effect", *["run"] * measured]
        lines = [header]
        for row in self.effects:
            numbers = [row.effect, *[nan if row.run is None else row.run] * measured]
            lines.append(
                [str(getattr(row, name)) for name in names]
                + [f"{number:+.4f}" for number in numbers]
            )
        return lines


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's rank correlation; ties have their mean rank.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    0.5
    """
    ranks = torch.stack([_ranks(each) for each in (x, y)])
    return round(float(torch.corrcoef(ranks)[0, 1]), 6)


def _ranks(numbers: Tensor) -> Tensor:
    _, places, counts = numbers.double().unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    means: Tensor = ends - (counts - 1) / 2
    return means[places]
