"""A look to train with where queries or keys hold NaN or infinity."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.kernels.zeroed import Zeroed
from regard.attention.looks.look import Look


class ZeroedLook(Look):
    """A look with zeros in place of NaN and infinity, for gradients.

    A row that may read such a key, or whose query holds such a number, keeps what the numbers
    came to, and gives no gradient.

    Args:
        look: With the numbers as they are.
        found: Its request with zeros.
    """

    def __init__(self, look: Look, found: Zeroed) -> None:
        super().__init__(found.request)
        self._look, self._found = look, found

    def _prepared(self) -> ZeroedLook:
        prepared = super()._prepared()
        return ZeroedLook(self._look, replace(self._found, request=prepared._request))

    def _rows(self, rows: Tensor | None) -> Tensor:
        return self._joined(rows, self._look._rows(rows), super()._rows(rows))

    def _scores(self, rows: Tensor) -> Tensor:
        return self._joined(rows, self._look._scores(rows), super()._scores(rows))

    def _spoilt(self, rows: Tensor | None) -> Tensor:
        return self._found.spoilt(rows)

    def _joined(self, rows: Tensor | None, given: Tensor, zeroed: Tensor) -> Tensor:
        return torch.where(self._spoilt(rows), given.detach(), zeroed)
