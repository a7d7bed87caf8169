"""A look at what the heads read together."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.looks.entries import Entry
from regard.attention.looks.look import Look
from regard.attention.looks.source import Mean, Source
from regard.attention.shapes import Shape, ShapeError


class MeanLook(Look):
    """The look whose weights are another's, averaged over its last batch axis."""

    def __init__(self, look: Look) -> None:
        if len(look.shape) < 3:
            raise ShapeError(
                f"the look has shape {list(look.shape)}: there is no axis of heads to average"
            )
        self._look, self.caption = look, look.caption.averaged()

    @property
    def shape(self) -> Shape:
        return (*self._look.shape[:-3], *self._look.shape[-2:])

    @property
    def device(self) -> torch.device:
        return self._look.device

    def _at(self, entries: tuple[Entry, ...]) -> MeanLook:
        return MeanLook(self._look._at((*entries, slice(None))))

    def _merged(self) -> MeanLook:
        raise TypeError("heads were averaged already: merge the groups before mean_heads()")

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = self._look._rows(rows)
        batch, count = self._look.shape[:-2], weights.shape[-2]
        mean = weights.expand(*batch, count, self.shape[-1]).mean(-3)
        spoilt = self._spoilt(rows)
        return mean if spoilt is None else torch.where(spoilt, mean.detach(), mean)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        spoilt = self._look._spoilt(rows)
        if spoilt is None:
            return None
        return spoilt.expand(*self._look.shape[:-2], *spoilt.shape[-2:]).any(-3)

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        allowed = self._look.readable(rows, columns)
        return None if allowed is None else allowed.any(-3)

    def _scores(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _temperature(self) -> float:
        raise TypeError("a mean of several softmaxes has no log-normaliser: look at each head")

    def _source(self) -> Source:
        return Mean(self._look._source(), self._empty)

    def _cost(self) -> int:
        return self._look._cost() * self._look.shape[-3]

    def _dtype(self) -> torch.dtype:
        return self._look._dtype()

    def _leaves(self) -> list[Tensor] | None:
        return self._look._leaves()

    def _learner(self) -> MeanLook:
        return MeanLook(self._look._learner())

    def _finite(self) -> MeanLook:
        return MeanLook(self._look._finite())

    def _learns(self) -> bool:
        return self._look._learns()

    def _stamp(self) -> object:
        return None
