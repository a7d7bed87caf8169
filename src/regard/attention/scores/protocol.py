"""The protocol of scores: functions of a query and a key."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Score(Protocol):
    """Any callable (query, key) -> scores; the caller's own functions are scores too."""

    def __call__(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"],
        /,
    ) -> Float[Tensor, "... queries keys"]: ...
