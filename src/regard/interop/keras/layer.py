"""A layer of Keras as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class KerasLayer:
    """A layer of Keras, as arrays.

    Attributes:
        kind: its class: "Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention".
        config: the keys of its `get_config` that change its output.
        weights: of its `get_weights`, in that order.
        shapes: of query, value and key, without the batch, to build it with.
    """

    kind: str
    config: dict[str, Any]
    weights: list[Array]
    shapes: tuple[tuple[int | None, ...], ...] = field(default=())

    def build(self, **options: Any) -> Any:
        """The layer itself, built and filled. Imports Keras; ``options`` go to its constructor (``dtype=``, ...)."""
        import keras

        layer = getattr(keras.layers, self.kind)(**self.config, **options)
        shapes = [(None, *shape) for shape in self.shapes]
        if self.kind in ("Attention", "AdditiveAttention"):
            layer.build(shapes)
        else:
            layer.build(*shapes)
        layer.set_weights(self.weights)
        return layer
